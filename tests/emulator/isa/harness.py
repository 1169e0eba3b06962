"""Runs one PTX instruction, or a few, on lanes: parsed, looked up in the table, printed as one block, executed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.builders.lanes import FULL
from emulator.builders.numpy_builder import BLOCKED, NumpyBuilder, base_namespace
from emulator.isa import lookup
from emulator.ptx.module import Function
from emulator.ptx.parser import parse
from emulator.ptx.types import TYPES


class Lanes:
    """Stands in for the warp: everybody is always here, and the lane's own rank is 3."""

    def __init__(self, here: bool = True) -> None:
        self.here = here
        self.at = 0
        self.bus = SimpleNamespace(on=False)

    def converge(self, mask: np.ndarray, members: np.ndarray) -> bool | None:
        """True, or None for a warp that must wait."""
        return True if self.here else None

    def special(self, name: str) -> np.ndarray:
        """Special registers that the tests use."""
        return {"laneid": np.arange(32, dtype=np.uint32), "cluster_ctarank": np.full(32, 3, np.uint32)}[name]

    def symbol(self, name: str, dtype: type) -> np.ndarray:
        """Every variable lies at 0x3000480 (rank 3, offset 0x480)."""
        return np.full(32, 0x3000480, dtype)


class Surroundings:
    """A block layout with one shared variable."""

    following = 1
    exit_block = 2

    @staticmethod
    def space_of(name: str) -> str | None:
        """The space of a variable."""
        return "shared" if name == "variable" else None


def parse_body(body: str, registers: dict[str, str]) -> Function:
    """The instructions of `body` in a kernel with the given registers (name: type)."""
    declared = "\n".join(f".reg .{type} {name};" for name, type in registers.items())
    head = ".version 9.0\n.target sm_100a\n.address_size 64\n.shared .b32 variable[4];"
    return parse(f"{head}\n.entry kernel() {{\n{declared}\n{body}\n}}\n").functions["kernel"]


def translate(function: Function, masked: bool = False) -> Any:
    """The block as a Python function `f(w, R, m)`. Raises Unsupported like the machine's decoder."""
    builder = NumpyBuilder(base_namespace(), Surroundings(), masked, frozenset(), False)
    for index, instruction in enumerate(function.instructions):
        found = lookup(instruction.opcode)
        if isinstance(found, str):
            raise Unsupported(found)
        builder.begin(index, instruction.guard, instruction.guard_negated)
        found[0].build(builder, instruction, found[1])
    exec(builder.text("f", 1), builder.namespace)
    return builder.namespace["f"]


class Code:
    """A translated body. Calling it runs it on registers given by name and returns all registers by name."""

    def __init__(self, body: str, registers: dict[str, str], masked: bool = False) -> None:
        self.function = parse_body(body, registers)
        self.run = translate(self.function, masked)

    def __call__(
        self, mask: np.ndarray = FULL, warp: Lanes | None = None, **values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Registers are raw: u8 to u64 arrays of 32 lanes, bool for predicates, [2, 32] u64 for b128. Others start at
        zero."""
        f = self.function
        slots = [_start(type, values.get(name)) for name, type in zip(f.register_names, f.register_types, strict=True)]
        with np.errstate(all="ignore"):
            self.result = self.run(warp or Lanes(), slots, mask)
        assert self.result in (1, BLOCKED)
        return dict(zip(f.register_names, slots, strict=True))


def _start(type: str, value: np.ndarray | None) -> np.ndarray:
    if type == "pred":
        return np.zeros(32, np.bool_) if value is None else value
    bits = TYPES[type].bits
    if bits == 128:
        return np.zeros((2, 32), np.uint64) if value is None else value
    dtype = f"u{bits // 8}"
    return np.zeros(32, dtype) if value is None else np.ascontiguousarray(value).view(dtype)


def batches(arrays: dict[str, np.ndarray]) -> tuple[int, list[dict[str, np.ndarray]]]:
    """Long inputs as batches of 32 lanes; the last one is filled with its first element."""
    count = len(next(iter(arrays.values())))
    chunks = []
    for start in range(0, count, 32):
        piece = {name: values[start : start + 32] for name, values in arrays.items()}
        chunks.append({n: np.concatenate((v, np.repeat(v[:1], 32 - len(v)))) for n, v in piece.items()})
    return count, chunks
