"""The attention kernel with one planted fault each. A gate names the status that each must earn (``falsified_by``).

A mutant overrides one method of the shipped kernel; the shipped kernel has no switch for it.
"""

from __future__ import annotations

from dataclasses import replace

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.nvgpu import tcgen05

from kernels.fmha.config import TILE_KV, TILE_Q
from kernels.fmha.sm100 import CHUNK, FmhaSm100
from kernels.shared.pipelines import Pipe


class KvTilePinned(FmhaSm100):
    """The mode of a TMA partition that counts key tiles is pinned to 0, the mode of stride 0 beside it is kept.

    Every tile number reads tile 0, no address is wrong, and one tile can't show it. Wrong values.
    """

    def key_tiles(self, tKgK, kv_head, batch):
        return tKgK[None, 0, None, kv_head, batch]

    def value_tiles(self, tVgV, kv_head, batch):
        return tVgV[None, None, 0, kv_head, batch]


class TmemRoundTrip(FmhaSm100):
    """The rescale loads O by one tensor-memory shape (16x256b) and stores it by another (32x32b).

    Each copy is right for itself; together they move values to other rows and columns, wherever a row is rescaled.
    Wrong values.
    """

    def rescale(self, tOtO, thread, factor):
        columns = cute.make_layout((TILE_Q, CHUNK))
        tOtO = cute.make_tensor(tOtO.iterator, cute.composition(tOtO.layout, columns))
        load_op = tcgen05.Ld16x256bOp(tcgen05.Repetition(CHUNK // 8))
        store_op = tcgen05.St32x32bOp(tcgen05.Repetition(CHUNK))
        load = tcgen05.make_tmem_copy(cute.make_copy_atom(load_op, Float32), tOtO)
        store = tcgen05.make_tmem_copy(cute.make_copy_atom(store_op, Float32), tOtO)
        source = load.get_slice(thread).partition_S(tOtO)
        target = store.get_slice(thread).partition_D(tOtO)
        shape = load.get_slice(thread).partition_D(cute.make_identity_tensor((TILE_Q, CHUNK))).shape
        for first in range(0, self.config.head_dim, CHUNK):
            loaded = cute.make_rmem_tensor(shape, Float32)
            cute.copy(load, cute.make_tensor(source.iterator + first, source.layout), loaded)
            cute.arch.fence_view_async_tmem_load()
            stored = cute.make_tensor(loaded.iterator, cute.make_layout(((CHUNK, 1), 1, 1)))
            self.scale_output(stored, factor)
            cute.copy(store, stored, cute.make_tensor(target.iterator + first, target.layout))
        cute.arch.fence_view_async_tmem_store()


class NoRescale(FmhaSm100):
    """O is not rescaled when a later tile raises the maximum of a row. Wrong values, from two tiles on."""

    def scale_output(self, tRrO, factor):
        pass


class FirstPvAccumulates(FmhaSm100):
    """The first PV adds to what tensor memory held instead of overwriting it. Not finite if that is poison."""

    def pv_accumulates(self, i: Int32, block: int):
        return True


class PWrongLayout(FmhaSm100):
    """P is packed in another order than PV reads it in: keys j and j + 16 share a word. Wrong values."""

    def probability_order(self):
        return cute.make_layout(((CHUNK // 2, 2), 1), stride=((2, 1), 0))


class TailNotMasked(FmhaSm100):
    """Keys past s_kv, which TMA fills with zeros, take part. Wrong values where s_kv is ragged."""

    def visible_keys(self, row: Int32, s_kv: Int32, diagonal: Int32) -> Int32:
        return super().visible_keys(row, cute.ceil_div(s_kv, TILE_KV) * TILE_KV, diagonal)


class RowMaxTile0(FmhaSm100):
    """Later tiles start from the maximum of tile 0. Wrong LSE from two tiles on, wrong output from three."""

    def carried_max(self, i, row_max, new_max):
        return cutlass.select_(i == 0, new_max, row_max)


class WrongTxCount(FmhaSm100):
    """The full barrier of the K pipeline expects 16 bytes more than TMA delivers. Hang."""

    def pipes(self) -> dict[str, Pipe]:
        pipes = super().pipes()
        return pipes | {"k": replace(pipes["k"], tx_bytes=pipes["k"].tx_bytes + 16)}


class MissingCommit(FmhaSm100):
    """No tcgen05.commit after QK: nobody tells the softmax warps that S is complete. Hang."""

    def commit_scores(self, pipe, turn):
        pass


class StageNeverReleased(FmhaSm100):
    """K and V stages are never given back to the load warp. Hang, but only with more tiles than stages."""

    def release_stage(self, pipe, turn):
        pass


class KForV(FmhaSm100):
    """PV multiplies K. Wrong values where V is another tensor than K."""

    def value_operand(self, mK: cute.Tensor, mV: cute.Tensor) -> cute.Tensor:
        return mK


MUTANTS = {
    "kv_tile_pinned": KvTilePinned,
    "tmem_round_trip": TmemRoundTrip,
    "no_rescale": NoRescale,
    "first_pv_accumulates": FirstPvAccumulates,
    "p_wrong_layout": PWrongLayout,
    "tail_not_masked": TailNotMasked,
    "row_max_tile_0": RowMaxTile0,
    "wrong_tx_count": WrongTxCount,
    "missing_commit": MissingCommit,
    "stage_never_released": StageNeverReleased,
    "k_for_v": KForV,
}
"""By name, as gates.yaml lists them."""
