"""A plain streaming read on a GPU, the floor that a weight's bytes set; needs Triton, which comes with torch for
CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

FORMS = ((1024, 4, 8), (2048, 8, 4), (4096, 8, 2), (4096, 16, 4))
"""Elements of a block, its warps, programs a multiprocessor."""


@triton.jit
def _read(data, out, count, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    seen = tl.zeros((BLOCK,), tl.int32)
    for begin in range(program * BLOCK, count, programs * BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        seen ^= tl.load(data + offsets, mask=offsets < count, other=0)
    tl.store(out + program, tl.sum(seen, 0))


def calls(sets: Sequence[torch.Tensor]) -> list[list[Callable[[], Any]]]:
    """For each form of the kernel, a call for every set of bytes (a multiple of 4 of them)."""
    words = [s.view(torch.int32) for s in sets]
    out = torch.empty(4096, dtype=torch.int32, device=sets[0].device)
    processors = torch.cuda.get_device_properties(sets[0].device).multi_processor_count

    def call(word: torch.Tensor, block: int, warps: int, each: int) -> Callable[[], Any]:
        return lambda: _read[(processors * each,)](word, out, word.numel(), block, num_warps=warps)

    return [[call(word, *form) for word in words] for form in FORMS]
