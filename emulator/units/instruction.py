"""The tcgen05 instruction descriptor: shapes, formats and options of one MMA, with their legality (PTX "Instruction
descriptor" and "Matrix Shape")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from emulator.errors import IllegalInstruction

_F16 = {0: "f16", 1: "bf16"}
_TF32 = {2: "tf32"}
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_I8 = {0: "u8", 1: "s8"}
_FP4 = {1: "e2m1"}
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "u8": 8, "s8": 8}


@dataclass(frozen=True)
class Kind:
    """One `.kind`: K of a dense instruction, operand format codes, accumulator types, scale block sizes."""

    name: str
    k: int
    formats: dict[int, str]
    accumulators: tuple[str, ...]
    blocks: tuple[int, ...] = ()

    @property
    def packed(self) -> bool:
        """4-bit operands lie two to a byte; in every other kind an element takes at least a byte."""
        return self.k == 64


KINDS = {
    kind.name: kind
    for kind in (
        Kind("f16", 16, _F16, ("f16", "f32")),
        Kind("tf32", 8, _TF32, ("f32",)),
        Kind("f8f6f4", 32, _NARROW, ("f16", "f32")),
        Kind("i8", 32, _I8, ("s32",)),
        Kind("mxf8f6f4", 32, _NARROW, ("f32",), (32,)),
        Kind("mxf4", 64, _FP4, ("f32",), (32,)),
        Kind("mxf4nvf4", 64, _FP4, ("f32",), (16, 32)),
    )
}


def block_size(kind: str, qualifier: str | None) -> int:
    """Elements per scale factor that `.scale_vec::NX` or `.blockN` asks for; 0 without a qualifier."""
    if qualifier is None:
        return 0
    if qualifier.startswith("scale_vec::"):
        return KINDS[kind].k // int(qualifier.removeprefix("scale_vec::").removesuffix("X"))
    return int(qualifier.removeprefix("block"))


@dataclass(frozen=True)
class InstrDescriptor:
    """A decoded descriptor. m, n, k of the whole instruction (both CTAs); a, b, d format names; saturate: clamp s32;
    block: elements per scale factor (0: none), scale: its format, sfa_id / sfb_id: byte of the scale word."""

    kind: Kind
    m: int
    n: int
    a: str
    b: str
    d: str
    negate_a: bool
    negate_b: bool
    mn_major_a: bool
    mn_major_b: bool
    saturate: bool
    block: int = 0
    scale: str = ""
    sfa_id: int = 0
    sfb_id: int = 0

    @property
    def k(self) -> int:
        """Depth of one dense instruction."""
        return self.kind.k

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(word: int, kind: str, cta_group: int = 1, ws: bool = False, block: int = 0) -> InstrDescriptor:
        """Decode and check. `block`: elements per scale factor of a block-scaled kind (0 takes the only one there is).

        Raises IllegalInstruction, naming field, value and what is allowed.
        """
        if kind not in KINDS:
            raise IllegalInstruction(f"tcgen05.mma.kind::{kind}: allowed kinds: {', '.join(KINDS)}")
        found = _scaled(word, KINDS[kind], block) if KINDS[kind].blocks else _plain(word, KINDS[kind])
        if word >> 2 & 1:
            raise IllegalInstruction(f"instruction descriptor {word:#010x}: sparsity bit set for a dense MMA")
        _check_shape(found, cta_group, ws)
        _check_options(found, cta_group)
        return found


def _lookup(word: int, what: str, code: int, table: dict[int, str], kind: Kind) -> str:
    if code not in table:
        allowed = ", ".join(f"{c} ({n})" for c, n in table.items())
        raise IllegalInstruction(f"kind::{kind.name} descriptor {word:#010x}: {what} {code}; allowed: {allowed}")
    return table[code]


def _plain(word: int, kind: Kind) -> InstrDescriptor:
    accumulators = {c: n for c, n in _ACCUMULATORS.items() if n in kind.accumulators}
    return InstrDescriptor(
        kind=kind,
        m=(word >> 24 & 31) << 4,
        n=(word >> 17 & 63) << 3,
        a=_lookup(word, "A type", word >> 7 & 7, kind.formats, kind),
        b=_lookup(word, "B type", word >> 10 & 7, kind.formats, kind),
        d=_lookup(word, "D type", word >> 4 & 3, accumulators, kind),
        negate_a=bool(word >> 13 & 1),
        negate_b=bool(word >> 14 & 1),
        mn_major_a=bool(word >> 15 & 1),
        mn_major_b=bool(word >> 16 & 1),
        saturate=bool(word >> 3 & 1),
    )


def _scaled(word: int, kind: Kind, block: int) -> InstrDescriptor:
    if not block and len(kind.blocks) > 1:
        raise IllegalInstruction(f"kind::{kind.name} needs a scale vector size: block16 or block32")
    block = block or kind.blocks[0]
    if block not in kind.blocks:
        raise IllegalInstruction(f"kind::{kind.name} with blocks of {block}; allowed: {kind.blocks}")
    scale = "ue8m0" if word >> 23 & 1 else "ue4m3"
    if scale == "ue4m3" and (kind.name != "mxf4nvf4" or block != 16):
        raise IllegalInstruction(f"kind::{kind.name} with blocks of {block}: scale type ue4m3; allowed: ue8m0")
    if word >> 31 & 1:
        raise IllegalInstruction(f"kind::{kind.name} descriptor {word:#010x}: K = 96 is sm_103a only")
    ids = {"A": word >> 29 & 3, "B": word >> 4 & 3}
    factors = kind.k // block
    allowed = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
    for side, number in ids.items():
        if number not in allowed[factors]:
            raise IllegalInstruction(
                f"kind::{kind.name} with {factors} scale factors a row: scale factor {side} ID {number}; "
                f"allowed: {allowed[factors]}"
            )
    return InstrDescriptor(
        kind=kind,
        m=(word >> 27 & 3) << 7,
        n=(word >> 17 & 63) << 3,
        a=_lookup(word, "A type", word >> 7 & 7, kind.formats, kind),
        b=_lookup(word, "B type", word >> 10 & (3 if kind.packed else 7), kind.formats, kind),
        d="f32",
        negate_a=bool(word >> 13 & 1),
        negate_b=bool(word >> 14 & 1),
        mn_major_a=bool(word >> 15 & 1),
        mn_major_b=bool(word >> 16 & 1),
        saturate=False,
        block=block,
        scale=scale,
        sfa_id=ids["A"],
        sfb_id=ids["B"],
    )


def _check_shape(d: InstrDescriptor, cta_group: int, ws: bool) -> None:
    """M and N against the table of matrix shapes."""
    scaled = bool(d.block)
    if ws and (cta_group != 1 or scaled):
        raise IllegalInstruction(f"tcgen05.mma.ws with kind::{d.kind.name}.cta_group::{cta_group} does not exist")
    if ws:
        rows: tuple[int, ...] = (32, 64, 128)
        columns: tuple[int, ...] = (64, 128, 256)
    elif cta_group == 2:
        step = 32 if d.kind.name == "i8" else 16
        rows, columns = (128, 256), tuple(range(step, 257, step))
    else:
        rows = (128,) if scaled else (64, 128)
        columns = (8, 16, 24, 32, *range(48, 257, 16)) if d.kind.name == "i8" else tuple(range(8, 257, 8))
    mode = ".ws" if ws else f".cta_group::{cta_group}"
    if d.m not in rows:
        raise IllegalInstruction(f"tcgen05.mma{mode}.kind::{d.kind.name}: M = {d.m}; allowed: {rows}")
    if d.n not in columns:
        step = columns[-1] - columns[-2]
        raise IllegalInstruction(
            f"tcgen05.mma{mode}.kind::{d.kind.name}: N = {d.n}; allowed: {columns[0]}..{columns[-1]} in steps of {step}"
        )


def _check_options(d: InstrDescriptor, cta_group: int) -> None:
    """Formats, majorness and negation that a kind does not have."""
    name = d.kind.name
    if d.d == "f16" and name == "f16" and (d.a, d.b) != ("f16", "f16"):
        raise IllegalInstruction(f"kind::f16 with an f16 accumulator needs f16 operands, not {d.a} x {d.b}")
    if name == "i8" and (d.negate_a or d.negate_b):
        raise IllegalInstruction("kind::i8 cannot negate its operands")
    if d.kind.packed and (d.mn_major_a or d.mn_major_b):
        raise IllegalInstruction(f"kind::{name} takes K-major operands only")
    for side, fmt, mn_major in (("A", d.a, d.mn_major_a), ("B", d.b, d.mn_major_b)):
        if mn_major and BITS[fmt] < 8:
            raise IllegalInstruction(f"kind::{name}: MN-major {side} of type {fmt}; only 8-bit types have it")
    step = 16 * cta_group
    if d.mn_major_b and BITS[d.b] == 8 and d.n % step:
        raise IllegalInstruction(f"kind::{name}: MN-major 8-bit B with N = {d.n}; a multiple of {step} is needed")
    if d.saturate and name != "i8":
        raise IllegalInstruction(f"kind::{name}: the saturate bit is for kind::i8")
