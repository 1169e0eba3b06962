"""Small launches that the tests of views and breakpoints look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import emulator
from emulator.views import Recorder
from tests.emulator.machine import pipeline
from tests.emulator.machine.arena import Arena

NAMES: dict[str, Any] = {
    "roles": {0: "load", 1: "fold", 2: "fold"},
    "barriers": ["p.full[0]", "p.full[1]", "p.empty[0]", "p.empty[1]"],
}
FILE = '.file 1 "kernels/pipe.py"\n'

# Warp w of 4 writes its thread number times 4 plus the column to its 32 lanes of columns 0..3, then warps 0 and 1 load
# them by one shape and store what they have loaded by LATER.
TENSOR = """
.shared .align 8 .b32 place;
"""
TENSOR_BODY = """
mov.u32 %r1, %tid.x; shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r3, 0; mov.u32 %r10, place;
.loc 1 3 0
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;
bar.sync 0;
ld.shared.u32 %r11, [%r10];
shl.b32 %r20, %r1, 2; add.u32 %r21, %r20, 1; add.u32 %r22, %r20, 2; add.u32 %r23, %r20, 3;
.loc 1 8 0
tcgen05.st.sync.aligned.32x32b.x4.b32 [%r11], {%r20, %r21, %r22, %r23};
tcgen05.wait::st.sync.aligned;
bar.sync 0;
setp.gt.u32 %p2, %r3, 1; @%p2 bra DONE;
.loc 1 12 0
tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r30, %r31, %r32, %r33}, [%r11];
tcgen05.wait::ld.sync.aligned;
.loc 1 14 0
LATER
tcgen05.wait::st.sync.aligned;
DONE: bar.sync 0;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r11, 64;
ret;
"""
SAME = "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r11], {%r30, %r31, %r32, %r33};"
OTHER = "tcgen05.st.sync.aligned.16x64b.x4.b32 [%r11], {%r30, %r31, %r32, %r33};"
"""16 lanes and 8 columns where 32 lanes and 4 columns were loaded."""


def fold(listener: Any = None, body: str = pipeline.RIGHT, **settings: Any) -> tuple[np.ndarray, emulator.Launch]:
    """The pipeline of `machine.pipeline`, with source lines."""
    out = np.zeros((2, 32), np.uint32)
    arena = Arena(source=pipeline.words(), out=out)
    listeners = () if listener is None else (listener,)
    declarations = FILE + pipeline.DECLARATIONS
    return out, arena.run(body, declarations=declarations, block=96, listeners=listeners, **settings)


def folded(body: str = pipeline.RIGHT, **settings: Any) -> Recorder:
    """A recorder that has heard the pipeline; faults are swallowed."""
    recorder = Recorder(**NAMES)
    try:
        fold(recorder, body, **settings)
    except emulator.errors.EmulatorError:
        pass
    return recorder


def tensor(listener: Any, later: str = SAME, grid: int = 1) -> emulator.Launch:
    """The tensor-memory kernel, which takes no arguments."""
    body = TENSOR_BODY.replace("LATER", later)
    return Arena().run(body, declarations=FILE + TENSOR, block=128, grid=grid, listeners=[listener])


Attend = Callable[..., tuple[Recorder, Any, Any]]
