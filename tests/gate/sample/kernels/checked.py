"""A launch on the real emulator, so that checkers have something to hear of: hand-written PTX with a fault by name."""

from __future__ import annotations

from typing import Any

import emulator
from emulator.memory.globals import GlobalMemory

BODIES = {
    "clean": "st.shared.u32 [tile], %r1; ld.shared.u32 %r2, [tile];",
    "uninitialised": "ld.shared.u32 %r2, [tile];",
    "many": "".join(f"ld.shared.u32 %r2, [tile+{4 * k}]; st.global.u32 [%rd1+{4 * k}], %r2;" for k in range(14)),
    "beyond": "mov.u32 %r3, 512; ld.shared.u32 %r2, [%r3]; mov.u32 %r2, 0;",
    "both": "mov.u32 %r3, 512; ld.shared.u32 %r2, [%r3];",
    "faults": "ld.global.u32 %r2, [%rd1+4096];",
}
"""What stands between the load of the output's address (%rd1; %r1 is 7) and a store of %r2 to it."""


def touch(fault: str, backend: Any) -> None:
    """Run the body of that name under the listeners of the backend."""
    text = f""".version 8.8
.target sm_100a
.address_size 64
.visible .entry sample(.param .u64 p_out)
{{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 16 .b8 tile[64];
ld.param.u64 %rd1, [p_out]; mov.u32 %r1, 7;
{BODIES[fault]}
st.global.u32 [%rd1], %r2;
ret;
}}
"""
    memory = GlobalMemory()
    out = memory.allocate(64, "out")
    parameters = [out.address.to_bytes(8, "little")]
    emulator.run(
        emulator.parse(text), "sample", (1, 1, 1), (1, 1, 1), parameters, memory, listeners=tuple(backend.listeners)
    )
