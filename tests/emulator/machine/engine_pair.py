"""One body of PTX run by both engines on the same registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from emulator.builders.lanes import FULL
from emulator.events import Bus
from emulator.machine.cluster import Cluster
from emulator.machine.grid import Grid
from emulator.machine.native.program import NativeProgram
from emulator.machine.program import Program
from emulator.memory.globals import GlobalMemory
from emulator.ptx.module import Module
from emulator.ptx.parser import parse
from emulator.ptx.types import TYPES

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"

_F32 = (
    0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0x42FE0000, 0x43000000,
    0x42FC0000, 0x477FE000, 0x477FF000, 0x4F000000, 0x4EFFFFFF, 0x5F000000, 0x7E800000, 0x7F000000, 0x7F7FFFFF,
    0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x387FC000, 0x33800000, 0x42280000,
)  # fmt: skip
_F64 = (
    0, 1, 0x10000000000000, 0x3FF0000000000000, 0x3FE0000000000000, 0x41E0000000000000, 0x43E0000000000000,
    0x47EFFFFFE0000000, 0x380FFFFFFFFFFFFF, 0x3810000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0x7FF0000000000001, 0x7FF8000000000000, 0x7FF8000012345678, 0x36A0000000000000, 0x3FF0000010000000,
)  # fmt: skip
_INTEGERS = (0, 1, 2, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, -1, -2, -128)


def specials(bits: int) -> np.ndarray:
    """Patterns that matter for some type of this width."""
    floats = {32: _F32, 64: _F64}.get(bits, tuple(range(0, 1 << bits, 1 << max(0, bits - 6))))
    limits = (1 << (bits - 1), (1 << (bits - 1)) - 1, 1 << (bits - 1) | 1)
    signed = [f | 1 << (bits - 1) for f in floats]
    values = [v & ((1 << bits) - 1) for v in (*_INTEGERS, *floats, *signed, *limits)]
    return np.array(values, f"u{bits // 8}")


def lanes(type: str, random: np.random.Generator) -> np.ndarray:
    """32 raw lanes of a register type: half special patterns, half random bits."""
    if type == "pred":
        return random.integers(0, 2, 32).astype(np.bool_)
    bits = TYPES[type].bits
    if bits == 128:
        return np.stack([lanes("b64", random), lanes("b64", random)])
    noise = random.integers(0, 1 << bits, 32, np.uint64).astype(f"u{bits // 8}") if bits < 64 else None
    if noise is None:
        noise = random.integers(0, 1 << 64, 32, np.uint64)
    return np.where(random.random(32) < 0.5, random.choice(specials(bits), 32), noise).astype(f"u{bits // 8}")


def numbers(type: str, random: np.random.Generator) -> np.ndarray:
    """32 raw lanes of ordinary numbers: near one as f32 or f64, small as integers of 16 bits."""
    if type in ("pred", "b128"):
        return lanes(type, random)
    bits = TYPES[type].bits
    values = random.standard_normal(32) * 10.0 ** random.integers(-2, 3)
    if bits == 32:
        return values.astype(np.float32).view(np.uint32)
    return values.view(np.uint64) if bits == 64 else values.astype(np.float16).view(np.uint16).astype(f"u{bits // 8}")


def module(body: str, registers: dict[str, str], declarations: str = "") -> Module:
    """A kernel of two blocks: the body, and one that mentions every register, so that all are in the register file."""
    declared = "\n".join(f".reg .{type} {name};" for name, type in registers.items())
    moves = "\n".join(f"mov.{_move(type)} {name}, {name};" for name, type in registers.items() if type != "b8")
    text = f"{HEADER}{declarations}\n.entry k() {{\n{declared}\n{body}\nbra.uni REST;\nREST:\n{moves}\nret;\n}}\n"
    return parse(text)


def _move(type: str) -> str:
    return type if type == "pred" else f"b{TYPES[type].bits}"


def renamed(body: str, registers: dict[str, str], number: int) -> tuple[str, dict[str, str]]:
    """The body with a number behind every register, so that many bodies fit in one kernel."""
    for name in registers:
        body = re.sub(rf"(?<![\w.%]){re.escape(name)}(?![\w.])", f"{name}_{number}", body)
    return body, {f"{name}_{number}": type for name, type in registers.items()}


class Pair:
    """Both translations of a kernel without parameters."""

    def __init__(self, module: Module) -> None:
        self.function = module.functions["k"]
        self.programs = (Program(module, "k"), NativeProgram(module, "k"))

    def __call__(self, values: list[np.ndarray], live: np.ndarray = FULL) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The registers behind the kernel, of the reference and of the native engine, by slot."""
        reference, native = (self._run(p, values, live) for p in self.programs)
        return reference, native

    def _run(self, program: Any, values: list[np.ndarray], live: np.ndarray) -> list[np.ndarray]:
        shape = (1, 1, 1)
        with program.context() as context, np.errstate(all="ignore"):
            memory = GlobalMemory()
            grid = Grid(program, shape, (32, 1, 1), shape, 0, memory, Bus(()), "in_order", 0, "fast", 148, context)
            warp = Cluster(grid, (0, 0, 0), 0).warps[0]
            warp.live = FULL if live.all() else live
            for slot, value in enumerate(values):
                warp.set_register(slot, value)
            warp.run(1000)
            assert warp.done and warp.instructions == len(self.function.instructions)
            return [np.array(warp.get_register(slot)) for slot in range(len(values))]
