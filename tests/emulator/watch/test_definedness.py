"""What every byte of a result depends on, read off the semantics."""

from __future__ import annotations

import importlib

import pytest

import emulator
from emulator.watch.definedness import DependenceBuilder, slots_of, traced
from emulator.watch.plans import RULES, Plans
from tests.emulator.watch.checked import HEADER, REGISTERS

# body -> for every byte of the first register written, the registers (by name and byte) that it depends on
CASES = {
    "mov.b32 %r1, %r2;": ["r2.0", "r2.1", "r2.2", "r2.3"],
    "mov.b64 %rd1, {%r2, %r3};": [f"r{2 + k // 4}.{k % 4}" for k in range(8)],
    "and.b32 %r1, %r2, 0xff;": ["r2.0", "", "", ""],
    "or.b32 %r1, %r2, 0xffff0000;": ["r2.0", "r2.1", "", ""],
    "shl.b32 %r1, %r2, 16;": ["", "", "r2.0", "r2.1"],
    "shr.u32 %r1, %r2, 20;": ["r2.2 r2.3", "r2.3", "", ""],
    "add.u32 %r1, %r2, 1;": ["r2.0", "r2.0 r2.1", "r2.0 r2.1 r2.2", "r2.0 r2.1 r2.2 r2.3"],
    "cvt.u32.u8 %r1, %r2;": ["r2.0", "", "", ""],
    "cvt.s32.s16 %r1, %rs2;": ["rs2.0", "rs2.1", "rs2.1", "rs2.1"],
    "setp.eq.u32 %p1, %r2, 0;": ["r2.0 r2.1 r2.2 r2.3"],
    "mov.u32 %r1, %tid.x;": ["", "", "", ""],
}


def plans(body: str) -> tuple[Plans, list[str]]:
    text = f"{HEADER}.visible .entry kernel()\n{{\n{REGISTERS} .shared .b32 tile[4];\n{body}\nret;\n}}\n"
    program = emulator.translate(emulator.parse(text), "kernel", engine="numpy")
    return Plans(program), program.function.register_names


@pytest.mark.parametrize("body", CASES)
def test_bytes_depend_on(body):
    made, names = plans(body)
    (write,) = made.make(0).writes
    found = [" ".join(sorted(f"{names[a >> 4].strip('%')}.{a & 15}" for a in cell)) for cell in write.cells]
    assert found == CASES[body]


def test_a_plan_names_uses_guard_and_results():
    made, names = plans("@%p1 ld.shared.u32 %r1, [%r2]; bra L; L:")
    load, branch = made.make(0), made.make(1)
    assert load.rule == "load" and not load.settled and not load.branch and branch.branch
    assert [names[slot] for slot in load.watched] == ["%p1", "%r2"] and [names[s] for s in load.targets] == ["%r1"]
    assert [(use.kind, use.what) for use in load.uses] == [("uninitialised address", "an address")]
    assert load.guard is not None and names[load.guard] == "%p1"
    assert None not in made.made[:2]


def test_every_rule_names_a_handler_and_its_arguments():
    for handler, (_, names) in RULES.items():
        module, _, function = handler.partition(".")
        found = getattr(importlib.import_module(f"emulator.isa.{module}"), function)
        assert set(names) <= set(found.__code__.co_varnames[: found.__code__.co_argcount]), handler


def test_values_are_found_in_nested_arguments():
    builder = DependenceBuilder()
    one, two = builder.const("u32", 1), builder.const("u32", 2)
    assert traced((one, [two, None], "x")) == [one, two]
    assert slots_of(frozenset({16, 17, 35, -1})) == [1, 2]
