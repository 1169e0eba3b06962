"""Pipelines of bulk copies: TMA tiles in and out, and plain bulk copies of ragged rows."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

COMPUTE = 128
ROWS, COLUMNS = 16, 32
READ, WRITTEN = 1, 2


@dataclass(frozen=True)
class TmaDouble:
    """y = 2 x. Warp 4 loads tiles of 16 x 32 into two stages, warps 0 to 3 double them into two more, which TMA
    stores. A CTA walks along its 16 rows; TMA clips the ragged ends."""

    stages: int = 2

    @cute.kernel
    def kernel(
        self,
        load: cute.CopyAtom,
        tX: cute.Tensor,  # (m, n)
        store: cute.CopyAtom,
        tY: cute.Tensor,  # (m, n)
        layout: cute.Layout,  # (row, column, stage)
    ):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block, _, _ = cute.arch.block_idx()
        smem = SmemAllocator()
        full = smem.allocate_array(Int64, self.stages)
        empty = smem.allocate_array(Int64, self.stages)
        sX = smem.allocate_tensor(Float32, layout, 128)
        sY = smem.allocate_tensor(Float32, layout, 128)
        gX, gY = (cute.local_tile(t, (ROWS, COLUMNS), (block, None)) for t in (tX, tY))  # (row, column, tiles)
        tiles = cute.ceil_div(tX.shape[1], COLUMNS)
        if thread == 0:
            for stage in cutlass.range_constexpr(self.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, COMPUTE)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        if warp == 4:
            self.load(load, gX, sX, full, empty, tiles)
        else:
            self.double(store, gY, sX, sY, full, empty, tiles, thread)

    @cute.jit
    def load(self, atom, gX, sX, full, empty, tiles):
        """The producer: as soon as a stage is free, the next tile."""
        target, source = self.partition(atom, sX, gX)
        for i in cutlass.range(tiles, unroll=1):
            stage = i % self.stages
            cute.arch.mbarrier_wait(empty + stage, ((i // self.stages) & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, ROWS * COLUMNS * 4)
            cute.copy(atom, source[None, i], target[None, stage], tma_bar_ptr=full + stage)

    @cute.jit
    def double(self, atom, gY, sX, sY, full, empty, tiles, thread):
        """The consumers: a stage of x becomes a stage of y, which the async proxy reads."""
        source, target = self.partition(atom, sY, gY)
        for i in cutlass.range(tiles, unroll=1):
            stage = i % self.stages
            if thread // 32 == 0:
                cute.arch.cp_async_bulk_wait_group(self.stages - 1, read=True)
            cute.arch.barrier(barrier_id=READ, number_of_threads=COMPUTE)
            cute.arch.mbarrier_wait(full + stage, (i // self.stages) & 1)
            for part in cutlass.range_constexpr(ROWS * COLUMNS // COMPUTE):
                row, column = part * (COMPUTE // COLUMNS) + thread // COLUMNS, thread % COLUMNS
                sY[row, column, stage] = sX[row, column, stage] * Float32(2.0)
            cute.arch.mbarrier_arrive(empty + stage)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.barrier(barrier_id=WRITTEN, number_of_threads=COMPUTE)
            if thread // 32 == 0:
                with cute.arch.elect_one():
                    cute.copy(atom, source[None, stage], target[None, i])
                    cute.arch.cp_async_bulk_commit_group()
        if thread // 32 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    def partition(self, atom, sX, gX):
        """Shared and global side: (box, stage) and (box, tiles)."""
        one = cute.make_layout(1)
        return cpasync.tma_partition(atom, 0, one, cute.group_modes(sX, 0, 2), cute.group_modes(gX, 0, 2))

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        layout = cute.make_layout((ROWS, COLUMNS, self.stages), stride=(COLUMNS, 1, ROWS * COLUMNS))
        tile, box = cute.select(layout, mode=[0, 1]), (ROWS, COLUMNS)
        load, tX = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, tile, box)
        store, tY = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), y, tile, box)
        grid = [cute.ceil_div(x.shape[0], ROWS), 1, 1]
        self.kernel(load, tX, store, tY, layout).launch(grid=grid, block=[COMPUTE + 32, 1, 1], stream=stream)
