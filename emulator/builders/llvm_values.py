"""What printed LLVM IR is made of: values, types, the frame of a kernel, and the words through which it meets Python.

A value is a vector of 32 lanes. Names are numbers in the order of the text, which LLVM reads fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.builders.sources import WIDTH
from emulator.ptx.types import TYPES

LANES = 32
ALIGN = 64

_SCALARS = {"f16": "half", "f32": "float", "f64": "double", "pred": "i1"}
IR = {name: _SCALARS.get(name, f"i{width}") for name, width in WIDTH.items()}
"""IR type of one lane."""

VECTOR = {name: f"<{LANES} x {scalar}>" for name, scalar in IR.items()}
"""IR type of 32 lanes."""

MANGLED = {
    name: f"v{LANES}{ {'half': 'f16', 'float': 'f32', 'double': 'f64'}.get(scalar, scalar) }"
    for name, scalar in IR.items()
}
"""How intrinsics spell the type."""

CANONICAL_NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}

STATE = {
    name: 8 * word
    for word, name in enumerate(
        (
            "registers", "scratch", "constants", "counts", "callback", "lanes", "quarter", "whole", "limit", "budget",
            "instructions", "slept", "target", "taken", "following", "cta", "launch",
        )
    )
}  # fmt: skip
"""Byte offset of every word of a warp's state. `lanes` executes now; `whole` is 1 unless the warp has diverged; blocks
from `limit` on are left to Python; `target`, `taken` and `following` tell it where lanes go."""

CTA = {
    name: 8 * word
    for word, name in enumerate(("shared", "shared_bytes", "tensor", "tensor_columns", "barriers", "ctas", "cta_count"))
}
"""Words of a CTA. `tensor` is 0 until tensor memory exists; `tensor_columns` has a bit for every 32 allocated."""

LAUNCH = {name: 8 * word for word, name in enumerate(("regions", "region_count", "changes"))}
"""Words of a launch."""

YIELD, DIVERGE, JUMP, STOP = -1, -2, -3, -4
"""What the native function answers: out of budget or past the limit (go on at `target`); a split branch; an indirect
branch; the callback said stop."""


@dataclass(frozen=True)
class Kept:
    """An argument or result of an effect at an offset of the scratch area."""

    type: str
    offset: int


@dataclass(frozen=True)
class Uniform:
    """A constant argument of an effect: the same bits in all lanes."""

    type: str
    bits: int


@dataclass(frozen=True)
class Effect:
    """A call of Python from native code. Arguments are `Kept`, `Uniform`, tuples of them, or static objects; `guard` is
    the place of the executing lanes if these are not all that the warp executes with; a `pure` handler is a lane
    function, which takes neither warp nor mask; `single` results are not in a tuple."""

    handler: Callable[..., Any]
    index: int
    block: int
    guard: int | None
    arguments: tuple[Any, ...]
    results: tuple[Kept, ...]
    single: bool
    blocking: bool
    pure: bool


@dataclass(frozen=True)
class Shortcut:
    """Native code in front of a handler. `done`: an i1 that says that there is nothing left to do; `arguments`: the
    handler's, of which some may be `Kept` now. With `guard`, the native code itself has called Python where it could
    not do the work, and left the executing lanes at that place; false means then that Python said stop."""

    done: str
    arguments: Sequence[Any]
    guard: int | None = None


class W:
    """A value: its IR name or literal (None while it is in parts), its type, and whether it may hold a NaN that is not
    canonical. `constant` holds the bits of a literal."""

    __slots__ = ("name", "type", "parts", "loose_nan", "constant", "split", "views")

    def __init__(self, name: str | None, type: str, parts: list[W] | None = None) -> None:
        self.name = name
        self.type = type
        self.parts = parts
        self.loose_nan = False
        self.constant: int | None = None
        self.split: dict[int, list[W]] = {}
        self.views: dict[str, W] = {}


def literal(type: str, bits: int) -> str:
    """A constant of 32 equal lanes."""
    if type == "pred":
        return f"splat (i1 {'true' if bits else 'false'})"
    if type[0] == "f":
        return f"splat ({IR[type]} bitcast (i{WIDTH[type]} {bits} to {IR[type]}))"
    return f"splat ({IR[type]} {bits})"


@dataclass
class Frame:
    """What all blocks of a kernel share: the text, the places of registers, scratch and constants, the effects.

    `paired` are the slots of 64-bit registers that mostly hold two words: all low words lie before all high ones.

    `fast` maps handlers to printers of native code that may do the handler's work, see `LlvmBuilder.effect`.
    """

    register_types: Sequence[str]
    paired: frozenset[int] = frozenset()
    fast: Mapping[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    count: int = 0
    labels: int = 0
    scratch: int = 0
    scratch_bytes: int = ALIGN
    register_at: list[int] = field(default_factory=list)
    register_bytes: int = 0
    effects: list[Effect] = field(default_factory=list)
    constants: dict[tuple[str, str], int] = field(default_factory=dict)
    jumps: dict[int, tuple[Kept, int, tuple[int, ...], int]] = field(default_factory=dict)
    exits: dict[int, None] = field(default_factory=dict)
    functions: dict[str, list[str] | None] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    declared: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for type in self.register_types:
            self.register_at.append(self.register_bytes)
            size = 4 if type == "pred" else LANES * TYPES[type].bytes
            self.register_bytes += -(-size // ALIGN) * ALIGN

    def fresh(self) -> str:
        """The next IR name; the caller prints its definition at once."""
        self.count += 1
        return f"%{self.count - 1}"

    def label(self, kind: str) -> str:
        """A new label."""
        self.labels += 1
        return f"{kind}{self.labels}"

    def reserve(self, type: str) -> Kept:
        """A place in the scratch area, which lasts until the next effect."""
        place = self.scratch
        size = LANES * (1 if type == "pred" else WIDTH[type] // 8)
        self.scratch += -(-size // ALIGN) * ALIGN
        self.scratch_bytes = max(self.scratch_bytes, self.scratch)
        return Kept(type, place)

    def constant(self, kind: str, name: str) -> int:
        """The place of a value that does not change while the warp lives: 32 lanes of 64 bits."""
        return self.constants.setdefault((kind, name), 8 * LANES * len(self.constants))
