"""From what the addresses of an instruction are computed."""

from __future__ import annotations

import pytest

import emulator
from emulator.watch.provenance import ANYWHERE, Provenance
from tests.emulator.watch.checked import HEADER, REGISTERS

X, Y = ("parameter", ("x", 0)), ("parameter", ("y", 8))
LOADS = "ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y+8]; ld.param.u32 %r5, [x+8];"
CASES = {
    "ld.global.u32 %r1, [%rd1+16];": {X},
    "mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r2;": {Y},
    "mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; st.global.u32 [%rd4], %r2;": {X, ("parameter", ("x", 8))},
    "selp.b64 %rd4, %rd1, %rd2, %p1; ld.global.u32 %r1, [%rd4];": {X, Y},
    "L: add.s64 %rd1, %rd1, 4; ld.global.u32 %r1, [%rd1]; @%p1 bra L;": {X},
    "ld.global.u64 %rd4, [%rd1]; ld.global.u32 %r1, [%rd4];": {ANYWHERE},
    "mov.u32 %r3, tile; add.u32 %r3, %r3, 8; ld.shared.u32 %r1, [%r3];": {("variable", "tile")},
    "ld.shared.u32 %r1, [tile+4];": {("variable", "tile")},
    "cvta.to.global.u64 %rd3, %rd1; ld.global.u32 %r1, [%rd3];": {X},
    "mov.u32 %r3, 64; ld.shared.u32 %r1, [%r3];": set(),
}


@pytest.mark.parametrize("body", CASES)
def test_sources_of_the_last_access(body):
    parameters = ".param .align 8 .b8 x[16], .param .align 8 .b8 y[16]"
    declared = f"{REGISTERS} .shared .b32 tile[4];"
    text = f"{HEADER}.visible .entry kernel({parameters})\n{{\n{declared}\n{LOADS}{body}\nret;\n}}\n"
    program = emulator.translate(emulator.parse(text), "kernel", engine="numpy")
    code = program.function.instructions
    last = max(n for n, i in enumerate(code) if i.opcode.split(".")[0] in ("ld", "st") and "param" not in i.opcode)
    assert Provenance(program).sources(last) == CASES[body]
    assert Provenance(program).sources(len(code) + 5) == frozenset()
