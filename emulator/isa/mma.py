"""Matrix products of one warp: mma.sync and its sparse forms (PTX ISA 9.7.14.5, 9.7.14.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.builders.lanes import fma_f64
from emulator.isa.memory import items
from emulator.isa.operands import immediate, write
from emulator.isa.table import Modifiers, op
from emulator.isa.warplike import WarpLike, whole_warp
from emulator.ptx.module import Instruction
from emulator.units import fragments
from emulator.units.mma import INTEGERS, Arithmetic, combine, load

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1}
_RAW = {1: np.uint8, 4: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32}


@dataclass(frozen=True)
class Form:
    """What is fixed in the text of one instruction. m: rows; stored: elements of a row of A that are there; bits of an
    element; selector: sparsity selector, None when dense; ordered: metadata must ascend."""

    m: int
    stored: int
    bits: int
    how: Arithmetic
    selector: int | None = None
    ordered: bool = False

    @property
    def a_registers(self) -> int:
        """32-bit registers of a lane that hold A."""
        return self.m * self.stored * self.bits // 1024

    @property
    def b_registers(self) -> int:
        """32-bit registers of a lane that hold B."""
        return 8 * self.stored * self.bits // 1024 * (1 if self.selector is None else 2)

    @property
    def d_registers(self) -> int:
        """32-bit registers of a lane that hold C or D."""
        return self.m // 4 if self.how.d != "f16" else self.m // 8


_HEAD = "mma.sync.aligned"
_DENSE = (
    f"{_HEAD}.shape:m16n8k8|m16n8k16.row.col.d:f16.a:f16.b:f16.c:f16",
    f"{_HEAD}.shape:m16n8k8|m16n8k16.row.col.d:f32.a:f16.b:f16.c:f32",
    f"{_HEAD}.shape:m16n8k8|m16n8k16.row.col.d:f32.a:bf16.b:bf16.c:f32",
    f"{_HEAD}.shape:m16n8k4|m16n8k8.row.col.d:f32.a:tf32.b:tf32.c:f32",
    f"{_HEAD}.shape:m16n8k16|m16n8k32.row.col.d:f16.a:e4m3|e5m2.b:e4m3|e5m2.c:f16",
    f"{_HEAD}.shape:m16n8k16|m16n8k32.row.col.d:f32.a:e4m3|e5m2.b:e4m3|e5m2.c:f32",
    f"{_HEAD}.shape:m8n8k16|m16n8k16|m16n8k32.row.col[.satfinite].d:s32.a:u8|s8.b:u8|s8.c:s32",
    f"{_HEAD}.shape:m8n8k32|m16n8k32|m16n8k64.row.col[.satfinite].d:s32.a:u4|s4.b:u4|s4.c:s32",
    f"{_HEAD}.shape:m8n8k128|m16n8k128|m16n8k256.row.col.d:s32.a:b1.b:b1.c:s32.bit:xor|and.popc",
)
_SPARSE = (
    "shape:m16n8k16|m16n8k32.row.col.d:f16.a:f16.b:f16.c:f16",
    "shape:m16n8k16|m16n8k32.row.col.d:f32.a:f16.b:f16.c:f32",
    "shape:m16n8k16|m16n8k32.row.col.d:f32.a:bf16.b:bf16.c:f32",
    "shape:m16n8k8|m16n8k16.row.col.d:f32.a:tf32.b:tf32.c:f32",
    "shape:m16n8k64.row.col.d:f32.a:e4m3|e5m2.b:e4m3|e5m2.c:f32",
    "shape:m16n8k32|m16n8k64.row.col[.satfinite].d:s32.a:u8|s8.b:u8|s8.c:s32",
    "shape:m16n8k64|m16n8k128.row.col[.satfinite].d:s32.a:u4|s4.b:u4|s4.c:s32",
)


def _form(m: Modifiers, sparse: bool, selector: int | None, ordered: bool) -> Form:
    rows, k = (int(x) for x in m["shape"].removeprefix("m").split("n8k"))
    kind = m["a"]
    one_bit = "b1" + m["bit"] if kind == "b1" else ""
    saturate = bool(m.get("satfinite"))
    how = Arithmetic("mma.sync", one_bit or kind, one_bit or m["b"], m["d"], saturate=saturate)
    if not sparse:
        return Form(rows, k, _BITS[kind], how)
    form = Form(rows, k // 2, _BITS[kind], how, selector, ordered)
    bits, stored = form.bits, form.stored
    codes = {32: stored, 4: stored // 4}.get(bits, stored // 2)
    allowed = fragments.selectors(codes, bits <= 8)
    if selector is None or not 0 <= selector < allowed:
        raise Unsupported(f"sparsity selector {selector}; allowed: 0..{allowed - 1}")
    return form


@op(*_DENSE, section="9.7.14.5.14", starts_block=True)
def mma(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = A B + C on fragments that the whole warp holds."""
    _build(b, i, _form(m, False, None, False), None)


@op(*(f"mma.sp.sync.aligned.{p}" for p in _SPARSE), section="9.7.14.6.3", starts_block=True)
@op(*(f"mma.sp::ordered_metadata.sync.aligned.{p}" for p in _SPARSE), section="9.7.14.6.3", starts_block=True)
def mma_sparse(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = A B + C with the nonzero half of A and its positions in metadata."""
    selector = immediate(i.operands[5])
    form = _form(m, True, selector, "ordered_metadata" in i.opcode)
    _build(b, i, form, b.operand(i, 4, "u32"))


def _build(b: Any, i: Instruction, form: Form, metadata: Any) -> None:
    targets = items(i.operands[0])
    wanted = (form.d_registers, form.a_registers, form.b_registers, form.d_registers)
    given = tuple(len(items(o)) for o in i.operands[:4])
    if given != wanted:
        raise Unsupported(f"D, A, B and C have {given} registers; this shape needs {wanted}")
    a, c_b, c = ([b.source(x, "u32") for x in items(o)] for o in i.operands[1:4])
    values = b.blocking(_multiply, form, a, c_b, c, metadata, out=["u32"] * len(targets))
    for target, value in zip(targets, values, strict=True):
        write(b, target, value, "u32")


def _multiply(
    warp: WarpLike,
    mask: np.ndarray,
    form: Form,
    a: tuple[np.ndarray, ...],
    b: tuple[np.ndarray, ...],
    c: tuple[np.ndarray, ...],
    metadata: np.ndarray | None,
) -> np.ndarray | None:
    if whole_warp(warp, mask, "mma.sync") is None:
        return None
    how, mode, raw = form.how, warp.cluster.grid.arithmetic, _RAW[form.bits]
    left = load(how, "a", np.ascontiguousarray(fragments.matrix_a(a)).view(raw), mode)
    right = load(how, "b", np.ascontiguousarray(fragments.matrix_b(b)).view(raw), mode)
    old = fragments.accumulator(c, how.d == "f16")
    where = None
    if form.selector is not None and metadata is not None:
        where = fragments.positions(metadata, form.selector, form.bits, form.stored, form.ordered)
        if how.a in INTEGERS:
            left, where = fragments.spread(left, where), None
    return fragments.registers_of(combine(how, left, right, old, mode, positions=where))


@op(
    f"{_HEAD}.shape:m8n8k4|m16n8k4|m16n8k8|m16n8k16.row.col.f64.f64.f64.f64",
    section="9.7.14.5.14",
    starts_block=True,
)
def mma_double(b: Any, i: Instruction, m: Modifiers) -> None:
    """D = A B + C in f64: a chain of fused multiply-adds in the order of k, in both arithmetic modes."""
    rows, k = (int(x) for x in m["shape"].removeprefix("m").split("n8k"))
    targets = items(i.operands[0])
    wanted = (rows // 4, rows * k // 32, k // 4, rows // 4)
    given = tuple(len(items(o)) for o in i.operands[:4])
    if given != wanted:
        raise Unsupported(f"D, A, B and C have {given} registers; this shape needs {wanted}")
    sources = ([b.source(x, "u64") for x in items(o)] for o in i.operands[1:4])
    values = b.blocking(_multiply_double, *sources, out=["u64"] * len(targets))
    for target, value in zip(targets, values, strict=True):
        write(b, target, value, "u64")


def _multiply_double(
    warp: WarpLike,
    mask: np.ndarray,
    a: tuple[np.ndarray, ...],
    b: tuple[np.ndarray, ...],
    c: tuple[np.ndarray, ...],
) -> np.ndarray | None:
    if whole_warp(warp, mask, "mma.sync") is None:
        return None
    left, right = (np.ascontiguousarray(x).view(np.float64) for x in (fragments.matrix_a(a), fragments.matrix_b(b)))
    total = np.ascontiguousarray(fragments.accumulator(c)).view(np.float64)
    shape = total.shape
    total = total.ravel()
    for k in range(left.shape[1]):
        x, y = np.broadcast_arrays(left[:, k, None], right[None, :, k])
        total = fma_f64(x.ravel(), y.ravel(), total)
    return fragments.registers_of(total.view(np.uint64).reshape(shape))
