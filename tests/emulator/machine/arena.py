"""Small hand-written kernels for the machine's tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import emulator
from emulator.memory.globals import GlobalMemory

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"


class Arena:
    """Named arrays registered as device memory, and the kernels run on them."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.memory = GlobalMemory()
        self.arrays = arrays
        for name, array in arrays.items():
            self.memory.register(array.ctypes.data, array.nbytes, name, shape=array.shape, dtype=str(array.dtype))

    def run(self, body: str, *, parameters: str = "", declarations: str = "", grid: int = 1, block: int = 32,
            extra: tuple[bytes, ...] = (), **settings: Any) -> emulator.Launch:  # fmt: skip
        """Run a body whose first parameters are the addresses of the arrays, as %rd1, %rd2, … in order."""
        names = list(self.arrays)
        declared = [f".param .u64 p_{n}" for n in names] + ([parameters] if parameters else [])
        loads = "".join(f"ld.param.u64 %rd{k + 1}, [p_{n}];\n" for k, n in enumerate(names))
        text = (
            f"{HEADER}{declarations}\n.visible .entry kernel({', '.join(declared)})\n{{\n"
            ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .f32 %f<20>;\n"
            f"{loads}{body}\n}}\n"
        )
        values = [array.ctypes.data.to_bytes(8, "little") for array in self.arrays.values()]
        return emulator.run(
            emulator.parse(text), "kernel", (grid, 1, 1), (block, 1, 1), [*values, *extra], self.memory, **settings
        )


# %r1 = thread index, %rd30 = %rd1 + 4 * (ctaid * ntid + tid)
MY_WORD = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd31, %r4, 4; add.s64 %rd30, %rd1, %rd31;
"""
