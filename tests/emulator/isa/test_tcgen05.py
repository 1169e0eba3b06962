"""Forms of the tensor-core instructions: what translates and what is refused."""

from __future__ import annotations

import pytest

import emulator
from emulator.errors import UnknownInstruction
from tests.emulator.machine.arena import HEADER


def translate(instruction: str) -> None:
    registers = ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;"
    text = f"{HEADER}.visible .entry k()\n{{\n{registers}\n{instruction}\nret;\n}}\n"
    emulator.translate(emulator.parse(text), "k")


def test_a_zero_column_mask_of_0_masks_nothing():
    mma = "tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], [%r2], %rd1, %r3, %p1"
    translate(f"{mma};")
    translate(f"{mma}, 0;")
    with pytest.raises(UnknownInstruction, match="zero-column mask descriptors other than 0"):
        translate(f"{mma}, 3;")
    with pytest.raises(UnknownInstruction, match="must be an integer literal"):
        translate(f"{mma}, %rd2;")
