"""Breakpoints: run until a place, look at registers and memory, go on.

    with debug.Session(lambda: fmha(q, k, v, backend=backend), backend, **names) as session:
        stop = session.until(debug.mma(3))          # or line(812), python("sm100.py:388"), barrier("k.full[0]")
        stop.tensor("S[0]")                         # [128, 128] float32
        stop.shared(0x400, (128, 64), dtype="f16", swizzle="128B")
        stop.register("%r12", lane=3, dtype="f32")
        views.tmem_map(stop)                        # every view takes a stop
        session.step()                              # the next instruction of this warp
        out = session.finish()

`Debugger(points, on_break)` does the same with a callback, as a listener of any launch.
"""

from emulator.debug.debugger import STEPS, STOP, Debugger, Step
from emulator.debug.errors import BadBreakpoint, LeftBehind, NeverReached, Stopped
from emulator.debug.points import Point, barrier, instruction, line, mma, named_barrier, python
from emulator.debug.session import Session
from emulator.debug.stop import Stop

__all__ = [
    "STEPS", "STOP", "BadBreakpoint", "Debugger", "LeftBehind", "NeverReached", "Point", "Session", "Step", "Stop",
    "Stopped", "barrier", "instruction", "line", "mma", "named_barrier", "python",
]  # fmt: skip
