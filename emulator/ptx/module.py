"""What a parsed PTX module is: plain frozen records, no behaviour.

Registers are resolved while parsing: every `.reg` of every scope gets one slot number that is unique in its function,
so that inline-assembly blocks that reuse a name (`{ .reg .pred P1; LAB: ... }`) cannot collide. A vector register
(`.reg .v4 .b32 abcd`) is expanded into slots `abcd.x … abcd.w`, and a plain use of it becomes a `Vector`.
Labels are resolved to instruction indices of their function.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reg:
    """A virtual register: `slot` indexes the register file, `type` is its declared PTX type."""

    name: str
    type: str
    slot: int


@dataclass(frozen=True)
class Imm:
    """A literal. `bits`: the integer value (two's complement not applied, may be negative) or, for float literals
    (`0f3F800000`, `0d…`, `1.5`), the bit pattern of `width` bits (32 or 64); `width` is 0 for integers."""

    bits: int
    width: int
    text: str


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`; the name is kept without `%`."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """A variable (shared, global, const, local, param) or function, by name."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; base is Reg, Symbol or Imm. Also `base+offset` without brackets (symbol arithmetic)."""

    base: Reg | Symbol | Imm
    offset: int


@dataclass(frozen=True)
class TensorAddress:
    """`[map, {c0, c1, …}]` of the tensor copies; `map` is an Address."""

    map: Address
    coords: tuple[Operand, ...]


@dataclass(frozen=True)
class Vector:
    """`{a, b, …}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`d|p`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Not:
    """`!p` as a source predicate."""

    operand: Operand


@dataclass(frozen=True)
class Sink:
    """`_`: the bit bucket."""


@dataclass(frozen=True)
class Label:
    """A branch target: index into `Function.instructions` (may be one past the end)."""

    name: str
    index: int


@dataclass(frozen=True)
class LabelList:
    """A `.branchtargets` list used by `brx.idx`."""

    labels: tuple[Label, ...]


Operand = Reg | Imm | Special | Symbol | Address | TensorAddress | Vector | Pair | Not | Sink | Label | LabelList


@dataclass(frozen=True)
class Instruction:
    """One static instruction. `opcode` is the dotted opcode with all modifiers, as written (`add.rn.f32x2`). `serial`:
    an asynchronous operation that must complete at issue (the parser never sets it).

    The operands of every `call` are: a `Vector` of returns, the callee (`Symbol`, or `Reg` if indirect), a `Vector` of
    arguments (both may be empty), and for an indirect call the `Symbol` of its prototype or a `Vector` of the
    `Symbol`s it may call."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Reg | None
    guard_negated: bool
    line: int
    text: str
    loc: tuple[str, int] | None = None
    serial: bool = False


@dataclass(frozen=True)
class Variable:
    """A variable of any space. `nbytes` is 0 for `extern .shared x[]`; `init` holds initial bytes or None."""

    name: str
    space: str
    align: int
    nbytes: int
    init: bytes | None = None
    extern: bool = False


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter at `offset` of the parameter block."""

    name: str
    offset: int
    nbytes: int
    align: int


@dataclass(frozen=True)
class Prototype:
    """A `.callprototype`: the frame of an indirect call."""

    returns: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Function:
    """An `.entry` (or `.func`). `register_types[slot]` is the PTX type of each slot.

    `returns` are the return parameters of a `.func`; `extern` says that it is declared here and defined elsewhere;
    `prototypes` holds the `.callprototype`s of its indirect calls by name."""

    name: str
    entry: bool
    parameters: tuple[Parameter, ...]
    parameter_bytes: int
    register_types: tuple[str, ...]
    register_names: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    variables: tuple[Variable, ...]
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    returns: tuple[Parameter, ...] = ()
    extern: bool = False
    prototypes: dict[str, Prototype] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A PTX file. `target` like `sm_100a`, `version` like `8.8`; `source` is the text it came from."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    functions: dict[str, Function]
    source: str
