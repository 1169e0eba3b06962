"""Tensor memory as a mailbox between two groups of warps."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.cute.nvgpu import tcgen05
from cutlass.memory import SmemAllocator

from kernels.shared.fences import after_handover, before_handover

ROWS, COLUMNS = 128, 16
THREADS = 2 * ROWS


@dataclass(frozen=True)
class Mailbox:
    """y = 2 x, 128 rows, any number of columns. Warps 0 to 3 store blocks of 16 columns into two fields of tensor
    memory, warps 4 to 7 load and double them."""

    fields: int = 2

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = SmemAllocator()
        full, empty = (smem.allocate_array(Int64, self.fields) for _ in range(2))
        address = smem.allocate_array(Int32, 2, byte_alignment=8)
        if thread == 0:
            for field in cutlass.range_constexpr(self.fields):
                cute.arch.mbarrier_init(full + field, ROWS)
                cute.arch.mbarrier_init(empty + field, ROWS)
        if warp == 0:
            cute.arch.alloc_tmem(32, address)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.mbarrier_init_fence()
        before_handover()
        cute.arch.barrier()
        after_handover()
        tmem = cute.arch.retrieve_tmem_ptr(Float32, 16, address)
        blocks = cute.ceil_div(x.shape[1], COLUMNS)
        if warp < 4:
            self.store(x, tmem, full, empty, thread, blocks)
        else:
            self.load(y, tmem, full, empty, thread - ROWS, blocks)
        before_handover()
        cute.arch.barrier()
        if warp == 0:
            cute.arch.dealloc_tmem(tmem, 32)

    def field(self, tmem, n):
        """(row, column) of field n."""
        layout = cute.make_layout((ROWS, COLUMNS), stride=(1 << 16, 1))
        return cute.make_tensor(tmem + n * COLUMNS, layout)

    @cute.jit
    def store(self, x, tmem, full, empty, row, blocks):
        """Thread = row."""
        atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition(COLUMNS)), Float32)
        for i in cutlass.range(blocks, unroll=1):
            n = i % self.fields
            cute.arch.mbarrier_wait(empty + n, ((i // self.fields) & 1) ^ 1)
            after_handover()
            t = self.field(tmem, n)
            copy = tcgen05.make_tmem_copy(atom, t)
            target = copy.get_slice(row).partition_D(t)
            values = cute.make_rmem_tensor(((COLUMNS, 1), 1, 1), Float32)
            for j in cutlass.range_constexpr(COLUMNS):
                values[j] = Float32(0.0)
                if i * COLUMNS + j < x.shape[1]:
                    values[j] = x[row, i * COLUMNS + j]
            cute.copy(copy, values, target)
            cute.arch.fence_view_async_tmem_store()
            before_handover()
            cute.arch.mbarrier_arrive(full + n)

    @cute.jit
    def load(self, y, tmem, full, empty, row, blocks):
        """Thread = row."""
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(COLUMNS)), Float32)
        for i in cutlass.range(blocks, unroll=1):
            n = i % self.fields
            cute.arch.mbarrier_wait(full + n, (i // self.fields) & 1)
            after_handover()
            t = self.field(tmem, n)
            copy = tcgen05.make_tmem_copy(atom, t)
            values = cute.make_rmem_tensor(((COLUMNS, 1), 1, 1), Float32)
            cute.copy(copy, copy.get_slice(row).partition_S(t), values)
            cute.arch.fence_view_async_tmem_load()
            before_handover()
            cute.arch.mbarrier_arrive(empty + n)
            for j in cutlass.range_constexpr(COLUMNS):
                if i * COLUMNS + j < y.shape[1]:
                    y[row, i * COLUMNS + j] = values[j] * Float32(2.0)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)
