"""Operands of a tiled MMA: their TMA partitions, their loads through a pipeline, and a safe way to set MMA fields."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

from kernels.shared.pipelines import producer_turn


def partition_a(
    atom,
    tiled_mma,
    mX,  # (m, k, ...)
    sX,  # (MMA, MMA_M, MMA_K, stage)
    tiler,  # (M, N, K) of one tile
):
    """Shared and global side of the TMA copy of an A operand: (box, stage) and (box, m_tiles, k_tiles, ...)."""
    gX = cute.flat_divide(mX, (tiler[0], tiler[2]))  # (M, K, m_tiles, k_tiles, ...)
    tXgX = tiled_mma.get_slice(0).partition_A(gX)  # (MMA, MMA_M, MMA_K, m_tiles, k_tiles, ...)
    return _partition(atom, sX, tXgX)


def partition_b(
    atom,
    tiled_mma,
    mX,  # (n, k, ...)
    sX,  # (MMA, MMA_N, MMA_K, stage)
    tiler,  # (M, N, K) of one tile
):
    """Shared and global side of the TMA copy of a B operand: (box, stage) and (box, n_tiles, k_tiles, ...)."""
    gX = cute.flat_divide(mX, (tiler[1], tiler[2]))  # (N, K, n_tiles, k_tiles, ...)
    tXgX = tiled_mma.get_slice(0).partition_B(gX)  # (MMA, MMA_N, MMA_K, n_tiles, k_tiles, ...)
    return _partition(atom, sX, tXgX)


def _partition(atom, sX, tXgX):
    """Group the modes of one tile; what is left are stages on one side and tiles and the rest on the other."""
    one_cta = cute.make_layout(1)
    return cpasync.tma_partition(atom, 0, one_cta, cute.group_modes(sX, 0, 3), cute.group_modes(tXgX, 0, 3))


def fetch(
    atom,
    tXgX,  # (box, tiles)
    tile,
    tXsX,  # (box, stage)
    pipe,
    item,
):
    """Tile ``tile`` of global memory into the stage of pipeline item ``item``, as soon as that stage is free."""
    turn = producer_turn(item, pipe.num_stages)
    pipe.producer_acquire(turn)
    cute.copy(atom, tXgX[None, tile], tXsX[None, turn.index], tma_bar_ptr=pipe.producer_get_barrier(turn))


def private_copy(tiled_mma):
    """The same MMA as another Python object.

    ``set`` rebinds a value inside the object. If the object outlives the branch or the loop body in which that happens,
    the compiler stops with "operand does not dominate this use".
    """
    return cutlass.new_from_mlir_values(tiled_mma, cutlass.extract_mlir_values(tiled_mma))
