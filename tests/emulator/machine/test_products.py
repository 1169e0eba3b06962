"""Which wgmma products are marked serial: registers touched in flight, along every path."""

from __future__ import annotations

import pytest

import emulator
from emulator.machine.products import mark_serial
from tests.emulator.machine.arena import HEADER

D = "{%f0, %f1, %f2, %f3}"
MMA = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, %rd0, %rd1, %p0, 1, 1, 0, 0; "
OTHER = MMA.replace("%f", "%g")
FROM = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%g0, %g1, %g2, %g3}, {%a0, %a1, %a2, %a3}, %rd1, %p0, 1, 1, 0; "
)
COMMIT, WAIT = "wgmma.commit_group.sync.aligned; ", "wgmma.wait_group.sync.aligned {}; "
TOUCH, TOUCH_A = "add.f32 %f0, %f0, %f1; ", "mov.b32 %a2, 0; "


def serial(body: str) -> list[bool]:
    """For every product of the body whether it is marked."""
    registers = ".reg .pred %p<3>; .reg .f32 %f<4>, %g<4>; .reg .b32 %a<4>; .reg .b64 %rd<3>;"
    module = emulator.parse(HEADER + f".entry k() {{ {registers} {body} ret; }}")
    marked = mark_serial(module.functions["k"])
    return [i.serial for i in marked.instructions if i.opcode.startswith("wgmma.mma_async")]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (MMA + COMMIT + WAIT.format(0) + TOUCH, [False]),
        (TOUCH + MMA + MMA + COMMIT + WAIT.format(0) + TOUCH, [False, False]),
        (MMA + TOUCH + COMMIT + WAIT.format(0), [True]),
        (MMA + COMMIT + TOUCH + WAIT.format(0), [True]),
        (MMA + COMMIT + OTHER + COMMIT + WAIT.format(1) + TOUCH, [False, False]),
        (MMA + COMMIT + OTHER + COMMIT + WAIT.format(2) + TOUCH, [True, False]),
        # never committed: no wait covers it
        (MMA + WAIT.format(0) + TOUCH, [True]),
        (FROM + COMMIT + TOUCH_A + WAIT.format(0), [True]),
        (FROM + COMMIT + TOUCH + WAIT.format(0), [False]),
        (FROM + COMMIT + WAIT.format(0) + TOUCH_A, [False]),
        # one path waits, the other does not
        (MMA + COMMIT + "@%p1 bra SKIP; " + WAIT.format(0) + "SKIP: " + TOUCH, [True]),
        (MMA + COMMIT + "@%p1 bra SKIP; " + WAIT.format(0) + TOUCH + "SKIP: " + WAIT.format(0) + TOUCH, [False]),
        # around a loop: the group of the round before is covered, this round's is not
        ("L: " + MMA + COMMIT + WAIT.format(1) + TOUCH_A + "@%p1 bra L; " + WAIT.format(0) + TOUCH, [False]),
        ("L: " + TOUCH + MMA + COMMIT + WAIT.format(1) + "@%p1 bra L; ", [True]),
        ("L: " + TOUCH + MMA + COMMIT + WAIT.format(0) + "@%p1 bra L; ", [False]),
        # a guard is a touch of nothing, an exit ends the path
        (MMA + COMMIT + "@%p1 exit; " + WAIT.format(0) + TOUCH, [False]),
    ],
)
def test_marks(body: str, want: list[bool]) -> None:
    assert serial(body) == want


def test_a_function_without_products_is_left_alone() -> None:
    module = emulator.parse(HEADER + ".entry k() { ret; }")
    assert mark_serial(module.functions["k"]) is module.functions["k"]
