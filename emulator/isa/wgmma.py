"""Warpgroup matrix products of sm_90a (PTX ISA 9.7.15).

A warpgroup is four warps with consecutive indices from a multiple of four; warp q owns rows 16 q .. 16 q + 15 of D and
A, so every warp computes its own rows from its own issue and no warp waits for the others. The product is
asynchronous: its registers and shared memory are read and written *when it completes*, which may be as late as
`wgmma.wait_group`. A product whose registers the program touches before that completes at issue (`serial`), because
the assembler would make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.events import Choice
from emulator.isa.bulk import commit_group, wait_groups
from emulator.isa.memory import items
from emulator.isa.operands import immediate
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_operation, tell_step
from emulator.isa.warplike import WarpLike, first_lane, whole_warp
from emulator.ptx.module import Instruction, Operand, Reg, Vector
from emulator.ptx.types import TYPES
from emulator.units import fragments
from emulator.units.descriptors import Operand as MatrixOperand
from emulator.units.descriptors import operand
from emulator.units.mma import INTEGERS, Arithmetic, combine, load

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "u8": 8, "s8": 8, "b1": 8}
_RAW = {8: np.uint8, 16: np.uint16, 32: np.uint32}
ROW_BYTES = 32
"""Bytes of one stored row of A: K elements, or K / 2 of a sparse matrix."""

_FLOAT_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))


def _shapes(k: int, columns: Sequence[int]) -> str:
    return "shape:" + "|".join(f"m64n{n}k{k}" for n in columns)


def _patterns(sparse: bool) -> list[str]:
    head, twice = "wgmma.mma_async" + (".sp" if sparse else "") + ".sync.aligned", 2 if sparse else 1
    integer = _shapes(32 * twice, _INTEGER_N)
    found = [
        f"{head}.{_shapes(16 * twice, _FLOAT_N)}.d:f16|f32.a:f16.b:f16",
        f"{head}.{_shapes(16 * twice, _FLOAT_N)}.d:f32.a:bf16.b:bf16",
        f"{head}.{_shapes(8 * twice, _FLOAT_N)}.d:f32.a:tf32.b:tf32",
        f"{head}.{_shapes(32 * twice, _FLOAT_N)}.d:f16|f32.a:e4m3|e5m2.b:e4m3|e5m2",
        f"{head}.{integer}[.satfinite].d:s32.a:u8|s8.b:u8|s8",
        f"{head}.{integer}.d:s32.a:u8|s8.b:u8|s8[.satfinite]",
    ]
    return found if sparse else [*found, f"{head}.{_shapes(256, _INTEGER_N)}.d:s32.a:b1.b:b1.and.popc"]


@dataclass(frozen=True)
class Form:
    """What is fixed in the text of one instruction. k: logical columns of A (bytes for b1); stored: columns of A that
    are there; selector: sparsity selector, None when dense."""

    n: int
    k: int
    stored: int
    bits: int
    how: Arithmetic
    transpose_a: bool
    transpose_b: bool
    selector: int | None


@op(*_patterns(False), section="9.7.15.5.2", starts_block=True, ends_block=True)
@op(*_patterns(True), section="9.7.15.6.3", starts_block=True, ends_block=True)
def mma_async(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = A B (+ D) for this warp's rows; A from registers or shared memory, B from shared memory."""
    sparse = ".sp." in i.opcode
    d, a, from_b, *rest = i.operands
    metadata = b.source(rest.pop(0), "u32") if sparse else None
    selector = _literal(rest.pop(0), "the sparsity selector", (0, 1, 2, 3)) if sparse else None
    enable = b.source(rest.pop(0), "pred") if rest else None
    if enable is None:
        raise Unsupported("operand scale-d is missing")
    form = _form(m, rest, isinstance(a, Vector), selector)
    into = _slots(b, d, form.n // (4 if form.how.d == "f16" else 2), "D")
    source = _slots(b, a, 4, "A") if isinstance(a, Vector) else b.source(a, "u64")
    b.blocking(_issue, form, into, source, b.source(from_b, "u64"), enable, metadata, i.serial, out="pred")


def _form(m: Modifiers, rest: list[Operand], registers: bool, selector: int | None) -> Form:
    """Shape, arithmetic and the immediates after scale-d: scales and transposes of A and B as far as the type has
    them."""
    kind = m["a"]
    integer = m["d"] == "s32"
    names = [] if integer else ["scale of A", "scale of B"]
    if _BITS[kind] == 16:
        names += ["transpose of B"] if registers else ["transpose of A", "transpose of B"]
    if len(rest) != len(names):
        raise Unsupported(f"{len(rest)} operands after scale-d; this form takes {len(names)}: {', '.join(names)}")
    given = {n: _literal(o, n, (1, -1) if "scale" in n else (0, 1)) for n, o in zip(names, rest, strict=True)}
    n, k = (int(x) for x in m["shape"].removeprefix("m64n").split("k"))
    depth = k // 8 if kind == "b1" else k
    stored = depth if selector is None else depth // 2
    codes = stored if kind == "tf32" else stored // 2
    if selector is not None and selector >= fragments.selectors(codes, _BITS[kind] == 8):
        allowed = fragments.selectors(codes, _BITS[kind] == 8)
        raise Unsupported(f"sparsity selector {selector}; allowed: 0..{allowed - 1}")
    how = Arithmetic(
        "wgmma",
        "b1and" if kind == "b1" else kind,
        "b1and" if kind == "b1" else m["b"],
        m["d"],
        negate_a=given.get("scale of A") == -1,
        negate_b=given.get("scale of B") == -1,
        saturate=bool(m.get("satfinite")),
    )
    return Form(
        n,
        depth,
        stored,
        _BITS[kind],
        how,
        bool(given.get("transpose of A")),
        bool(given.get("transpose of B")),
        selector,
    )


def _literal(o: Operand, what: str, allowed: tuple[int, ...]) -> int:
    value = immediate(o)
    if value not in allowed:
        raise Unsupported(f"{what} is {o if value is None else value}; allowed: {', '.join(map(str, allowed))}")
    return value


def _slots(b: Any, o: Operand, count: int, what: str) -> tuple[int, ...]:
    """Slots of the 32-bit registers of an operand. They are read here, so that a builder keeps them in the register
    file: the product itself reads and writes them there, when it completes."""
    registers = items(o)
    if len(registers) != count:
        raise Unsupported(f"{what} has {len(registers)} registers; this shape needs {count}")
    found = []
    for register in registers:
        if not isinstance(register, Reg) or register.type == "pred" or TYPES[register.type].bits != 32:
            raise Unsupported(f"{what} contains {register}; 32-bit registers are needed")
        b.source(register, "u32")
        found.append(register.slot)
    return tuple(found)


@lru_cache(maxsize=1 << 14)
def _rows_of(word: int, k: int, bits: int, mn_major: bool, quarter: int) -> MatrixOperand:
    """Rows 16 quarter .. + 15 of the 64 x k matrix that a descriptor names."""
    whole = operand(word, 64, k, bits, mn_major, False)
    if mn_major:
        width = bits // 8
        part = whole.granules[:, quarter * width : (quarter + 1) * width]
    else:
        part = whole.granules[16 * quarter : 16 * quarter + 16]
    return replace(whole, rows=16, granules=np.ascontiguousarray(part))


@dataclass(frozen=True, eq=False)
class _Product:
    """One warp's part of an instruction that has been issued."""

    warp: WarpLike
    form: Form
    into: tuple[int, ...]
    a: MatrixOperand | tuple[int, ...]
    b: MatrixOperand
    accumulate: bool
    metadata: np.ndarray | None

    def complete(self, number: int) -> None:
        """Read the operands, multiply, write D."""
        warp, form, how = self.warp, self.form, self.form.how
        mode = warp.cluster.grid.arithmetic
        if warp.bus.on:
            self._tell(number)
        shared = warp.cta.shared
        raw = self._registers(self.a) if isinstance(self.a, tuple) else self.a.read(shared)
        left, right = load(how, "a", raw, mode), load(how, "b", self.b.read(shared), mode)
        where = None
        if form.selector is not None and self.metadata is not None:
            where = fragments.positions(self.metadata, form.selector, form.bits, form.stored, False)
            if how.a in INTEGERS:
                left, where = fragments.spread(left, where), None
        old = None
        if self.accumulate:
            old = fragments.accumulator(warp.get_registers(self.into), how.d == "f16")
        new = combine(how, left, right, old, mode, positions=where)
        warp.set_registers(self.into, fragments.registers_of(new))

    def _registers(self, slots: tuple[int, ...]) -> np.ndarray:
        words = fragments.matrix_a(self.warp.get_registers(slots))
        return np.ascontiguousarray(words).view(_RAW[self.form.bits])

    def _tell(self, number: int) -> None:
        for matrix in (self.a, self.b):
            if isinstance(matrix, MatrixOperand):
                where = matrix.granules.ravel() << 4
                rank = self.warp.cta.rank
                tell_operation(self.warp, number, "shared", "read", where, 16, rank, "tensor")


def _issue(
    warp: WarpLike,
    mask: np.ndarray,
    form: Form,
    into: tuple[int, ...],
    a: np.ndarray | tuple[int, ...],
    b: np.ndarray,
    enable: np.ndarray,
    metadata: np.ndarray | None,
    serial: bool,
) -> np.ndarray | None:
    if whole_warp(warp, mask, "wgmma") is None:
        return None
    quarter = _check_group(warp)
    lane = first_lane(mask)
    for what, value in (("A", a), ("B", b), ("scale-d", enable)):
        if isinstance(value, np.ndarray) and (value != value[lane]).any():
            raise IllegalInstruction(f"wgmma: {what} differs between the lanes of the warp")
    left: MatrixOperand | tuple[int, ...]
    if isinstance(a, tuple):
        left = a
    else:
        left = _rows_of(int(a[lane]), form.stored, form.bits, form.transpose_a, quarter)
    right = operand(int(b[lane]), form.n, form.k, form.bits, form.transpose_b, False)
    if warp.bus.on:
        warp.bus.publish(Choice(warp.id, enable))
    kept = None if metadata is None else metadata.copy()
    product = _Product(warp, form, into, left, right, bool(enable[lane]), kept)
    channel = ("wgmma", warp.cta.rank, warp.index)
    what = f"wgmma m64n{form.n}"
    operation = warp.cluster.start(warp, "wgmma", what, product.complete, channel, group="wgmma")
    warp.async_groups.open["wgmma"].append(operation)
    if serial and not operation.done:
        warp.cluster.in_flight.complete_through(operation)
    return mask


def _check_group(warp: WarpLike) -> int:
    """The warp's place in its warpgroup, after checking that the group is whole."""
    first = warp.index // 4 * 4
    if first + 4 > len(warp.cta.warps):
        raise IllegalInstruction(f"wgmma in warp {warp.index}: the CTA has no warps {first}..{first + 3} for a group")
    return warp.index % 4


@op("wgmma.fence.sync.aligned", section="9.7.15.7.1", no_effect=True)
def fence(b: Any, i: Instruction, m: Modifiers) -> None:
    """Registers are read and written in order here; checkers hear of the fence."""
    if b.watched:
        b.effect(_fence)


def _fence(warp: WarpLike, mask: np.ndarray) -> None:
    tell_step(warp, "wgmma.fence", (warp.cta.rank, warp.index), mask=mask)


@op("wgmma.commit_group.sync.aligned", section="9.7.15.7.2", starts_block=True)
def commit(b: Any, i: Instruction, m: Modifiers) -> None:
    """Close the warp's open group of products."""
    b.blocking(_commit, out="pred")


def _commit(warp: WarpLike, mask: np.ndarray) -> np.ndarray | None:
    if whole_warp(warp, mask, "wgmma.commit_group") is None:
        return None
    commit_group(warp, mask, "wgmma")
    return mask


@op("wgmma.wait_group.sync.aligned", section="9.7.15.7.3", starts_block=True, ends_block=True)
def wait(b: Any, i: Instruction, m: Modifiers) -> None:
    """Wait until at most N groups of the warp are pending."""
    allowed = immediate(i.operands[0])
    if allowed is None or allowed < 0:
        raise Unsupported(f"{i.operands[0]} must be a non-negative integer literal")
    b.blocking(_wait, b.const("u32", allowed), out="pred")


def _wait(warp: WarpLike, mask: np.ndarray, allowed: np.ndarray) -> np.ndarray | None:
    if whole_warp(warp, mask, "wgmma.wait_group") is None:
        return None
    wait_groups(warp, mask, "wgmma", allowed)
    return mask
