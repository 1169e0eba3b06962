"""Execution of tcgen05.mma and tcgen05.cp on shared and tensor memory (PTX ISA 9.7.16).

`places` is the (shared, tensor) memory of each CTA taking part: one, or both CTAs of a pair, even rank first. A pair
splits M between its accumulators and N between the B operands in its shared memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.errors import IllegalInstruction
from emulator.memory.shared import SharedMemory
from emulator.memory.tmem import TensorMemory, split_address
from emulator.units.descriptors import Operand, operand
from emulator.units.formats import decode
from emulator.units.instruction import BITS, InstrDescriptor, block_size
from emulator.units.mma import Arithmetic, combine, load, rows
from emulator.units.narrow import decompress, from_holders, unpack_nibbles, unpack_padded
from emulator.units.tensor_layout import CopyShape, Part, RegisterMap, accumulator, copy_shape, register_map

__all__ = ["Form", "Product", "RegisterMap", "check", "execute_copy", "execute_mma", "register_map"]

Bits = NDArray[Any]
Places = Sequence[tuple[SharedMemory, TensorMemory]]

# Every operand row of a dense instruction is 32 bytes: 8 columns of tensor memory.
OPERAND_BYTES = 32
OPERAND_COLUMNS = 8


@dataclass(frozen=True)
class Form:
    """What the opcode says: `kind` without `kind::`; `pair` for cta_group::2; `weights` for .ws; A in tensor memory;
    scale_d: D is multiplied by 2^-scale_d first (0..15, kinds f16 and tf32); block: the scale-vector qualifier."""

    kind: str
    pair: bool = False
    weights: bool = False
    a_from_tensor: bool = False
    scale_d: int = 0
    block: str | None = None


@dataclass(frozen=True)
class Product:
    """One MMA: tensor address `d`, `a` (descriptor or tensor address), descriptor `b`, instruction descriptor,
    enable-input-d, words of disable-output-lane (4, or 8 for a pair) and tensor addresses of the scale factors."""

    form: Form
    d: int
    a: int
    b: int
    descriptor: int
    enable: bool
    disable_lanes: Sequence[int] | None = None
    scales: tuple[int, int] | None = None

    @property
    def shape(self) -> InstrDescriptor:
        """The decoded instruction descriptor; IllegalInstruction for what PTX does not allow."""
        form = self.form
        return InstrDescriptor.decode(
            self.descriptor, form.kind, 2 if form.pair else 1, form.weights, block_size(form.kind, form.block)
        )


def check(product: Product, places: Places) -> None:
    """Refuse at issue: IllegalInstruction for the descriptors, lanes, columns or options, before any memory is read."""
    usual = _usual_product(product, places)
    if usual is not None:
        tensor = places[0][1]
        tensor.check_columns(usual.columns.start, usual.columns.stop - usual.columns.start, "tcgen05.mma D")
        if usual.left is None:
            tensor.check_columns(usual.at.start, OPERAND_COLUMNS, "tcgen05.mma A")
        return
    shape, form = product.shape, product.form
    if not 0 <= form.scale_d <= 15 or (form.scale_d and form.kind not in ("f16", "tf32")):
        raise IllegalInstruction(f"tcgen05.mma.kind::{form.kind}: scale-input-d {form.scale_d}; 0..15 for f16 and tf32")
    group = 2 if form.pair else 1
    if product.disable_lanes is not None and len(product.disable_lanes) != 4 * group:
        raise IllegalInstruction(
            f"disable-output-lane has {len(product.disable_lanes)} words; .cta_group::{group} needs {4 * group}"
        )
    parts, column = accumulator_parts(product, shape)
    spans = [(column, parts[0].last - parts[0].first, "tcgen05.mma D")]
    if form.a_from_tensor:
        lane, at = split_address(product.a)
        if lane != split_address(product.d)[0]:
            raise IllegalInstruction(f"tcgen05.mma: A at lane {lane} and D at lane {split_address(product.d)[0]}")
        spans.append((at, OPERAND_COLUMNS, "tcgen05.mma A"))
    else:
        smem_operand(product.a, shape.m // group, shape.a, shape.mn_major_a, shape)
    smem_operand(product.b, shape.n // group, shape.b, shape.mn_major_b, shape)
    if shape.block:
        if product.scales is None:
            raise IllegalInstruction(f"tcgen05.mma.kind::{form.kind} without scale factors")
        for address, count, what in zip(product.scales, (shape.m // group, parts[0].last), ("A", "B"), strict=True):
            spans.append((scale_column(address), -(-count // 32), f"tcgen05.mma scale factors {what}"))
    for _, tensor in places:
        for first, count, what in spans:
            tensor.check_columns(first, count, what)


def accumulator_parts(product: Product, shape: InstrDescriptor) -> tuple[tuple[Part, ...], int]:
    """Layout of D in each CTA and its first column."""
    lane, column = split_address(product.d)
    form = product.form
    return accumulator(shape.m // (2 if form.pair else 1), shape.n, form.pair, form.weights, lane), column


def scale_column(address: int) -> int:
    """Column of a scale-factor address; its top two bits repeat the scale factor ID."""
    lane, column = split_address(address & 0x3FFFFFFF)
    if lane:
        raise IllegalInstruction(f"tcgen05.mma: scale factors at lane {lane}; they start at lane 0")
    return column


def smem_operand(word: int, count: int, name: str, mn_major: bool, shape: InstrDescriptor) -> Operand:
    """Where an operand lies: `count` rows of K elements; narrow formats outside the packed kinds take a byte each."""
    bits = 4 if shape.kind.packed else max(8, BITS[name])
    return operand(word, count, shape.k, bits, mn_major, True)


def _codes(raw: Bits, name: str, shape: InstrDescriptor) -> Bits:
    """Element codes of bytes read from shared memory."""
    if shape.kind.packed:
        return unpack_nibbles(raw)
    return unpack_padded(raw, BITS[name]) if BITS[name] < 8 else raw


def _tensor_codes(tensor: TensorMemory, part: Part, column: int, shape: InstrDescriptor) -> Bits:
    """Element codes [rows, K] of A in tensor memory, low element of a word first."""
    raw = np.ascontiguousarray(tensor.words[part.lanes, column : column + OPERAND_COLUMNS])
    if BITS[shape.a] == 16:
        return raw.view(np.uint16)
    if BITS[shape.a] == 32:
        return raw
    octets = raw.view(np.uint8)
    return unpack_nibbles(octets) if shape.kind.packed else from_holders(octets, shape.a)


@dataclass(frozen=True, eq=False)
class _Usual:
    """A product of half types into f32 in one CTA whose rows lie in consecutive lanes: nothing is left to decide but
    what the memories hold. `left` is None for A in tensor memory, at `at`."""

    a: str
    b: str
    left: Operand | None
    at: slice
    right: Operand
    lanes: slice
    columns: slice

    def run(self, smem: SharedMemory, tensor: TensorMemory, enable: bool) -> None:
        """Multiply as `mma` does in `fast`, in the same order of operations."""
        if self.left is None:
            raw = np.ascontiguousarray(tensor.words[self.lanes, self.at]).view(np.uint16)
        else:
            raw = self.left.read(smem)
        total = decode(self.a, raw) @ decode(self.b, self.right.read(smem)).T
        d = tensor.floats[self.lanes, self.columns]
        if enable:
            np.add(total, d, out=d)
        else:
            d[...] = total


def _usual_product(product: Product, places: Places) -> _Usual | None:
    """The plan of a usual product. With no or four words of disabled lanes, all zero, every lane is written."""
    off = product.disable_lanes
    if len(places) > 1 or (off is not None and (len(off) != 4 or any(off))):
        return None
    return _usual(product.form, product.d, product.a, product.b, product.descriptor)


@lru_cache(1 << 12)
def _usual(form: Form, d: int, a: int, b: int, descriptor: int) -> _Usual | None:
    """The plan of such a product, None for any other."""
    product = Product(form, d, a, b, descriptor, True)
    shape = product.shape
    halves = {shape.a, shape.b} <= {"f16", "bf16"} and shape.d == "f32"
    if not halves or form.pair or form.scale_d or shape.block or shape.negate_a or shape.negate_b:
        return None
    parts, column = accumulator_parts(product, shape)
    if len(parts) > 1 or not isinstance(parts[0].lanes, slice):
        return None
    if form.a_from_tensor and split_address(a)[0] != split_address(d)[0]:
        return None
    left = None if form.a_from_tensor else smem_operand(a, shape.m, shape.a, shape.mn_major_a, shape)
    right = smem_operand(b, shape.n, shape.b, shape.mn_major_b, shape)
    at = split_address(a)[1]
    return _Usual(
        shape.a,
        shape.b,
        left,
        slice(at, at + OPERAND_COLUMNS),
        right,
        parts[0].lanes,
        slice(column, column + shape.n),
    )


def execute_mma(product: Product, places: Places, mode: str = "fast") -> None:
    """Read the operands, multiply and update D in the tensor memory of every CTA. `mode`: see `mma`.

    Raises MemoryFault when a descriptor reaches outside shared memory, IllegalInstruction like `check`.
    """
    if mode == "fast":
        usual = _usual_product(product, places)
        if usual is not None:
            usual.run(*places[0], product.enable)
            return
    disabled = product.disable_lanes if product.disable_lanes is not None and any(product.disable_lanes) else None
    shape, form = product.shape, product.form
    group = len(places)
    how = Arithmetic(
        unit="tcgen05",
        a=shape.a,
        b=shape.b,
        d=shape.d,
        negate_a=shape.negate_a,
        negate_b=shape.negate_b,
        saturate=shape.saturate,
        block=shape.block,
        scale=shape.scale,
        shift_c=form.scale_d,
    )
    source = smem_operand(product.b, shape.n // group, shape.b, shape.mn_major_b, shape)
    raw = source.read(places[0][0]) if group == 1 else np.concatenate([source.read(smem) for smem, _ in places])
    right = load(how, "b", _codes(raw, shape.b, shape), mode)
    parts, column = accumulator_parts(product, shape)
    for i, (smem, tensor) in enumerate(places):
        left = None
        if not form.a_from_tensor:
            where = smem_operand(product.a, shape.m // group, shape.a, shape.mn_major_a, shape)
            left = load(how, "a", _codes(where.read(smem), shape.a, shape), mode)
        off = disabled[4 * i : 4 * i + 4] if disabled is not None else None
        for part in parts:
            here = left
            if here is None:
                codes = _tensor_codes(tensor, part, split_address(product.a)[1], shape)
                here = load(how, "a", codes, mode)
            there = right if len(parts) == 1 else rows(right, slice(part.first, part.last))
            _update(product, how, tensor, part, column, here, there, mode, off)


def _update(
    product: Product,
    how: Arithmetic,
    tensor: TensorMemory,
    part: Part,
    column: int,
    left: Any,
    right: Any,
    mode: str,
    off: Sequence[int] | None,
) -> None:
    """D of one part: gather, combine, scatter."""
    columns = slice(column, column + part.last - part.first)
    old = None
    if product.enable:
        words = tensor.words[part.lanes, columns]
        old = words.astype(np.uint16) if how.d == "f16" else np.ascontiguousarray(words)
    if how.block:
        new = _scaled(product, how, tensor, part, left, right, old, mode)
    else:
        new = combine(how, left, right, old, mode)
    if off is None:
        tensor.words[part.lanes, columns] = new
        return
    bits = np.unpackbits(np.array(off, np.uint32).view(np.uint8), bitorder="little").astype(bool)
    kept = ~bits[part.index]
    tensor.words[part.index[kept], columns] = new[kept]


def _scaled(
    product: Product,
    how: Arithmetic,
    tensor: TensorMemory,
    part: Part,
    left: Any,
    right: Any,
    old: Bits | None,
    mode: str,
) -> Bits:
    """A block-scaled part. Every quarter of the lanes reads its own copy of the scale factors of B, so a copy that was
    never written shows (as NaN of the poison); equal copies are multiplied at once."""
    shape = product.shape
    if product.scales is None:
        raise IllegalInstruction(f"tcgen05.mma.kind::{shape.kind.name} without scale factors")
    at_a, at_b = (scale_column(s) for s in product.scales)
    factors = shape.k // how.block
    octets = tensor.words.view(np.uint8).reshape(*tensor.words.shape, 4)
    row = np.arange(part.index.size)
    first = shape.sfa_id if factors < 4 else 0
    scale_a = octets[part.index, at_a + row // 32, first : first + factors]
    n = np.arange(part.last - part.first)
    first = shape.sfb_id if factors < 4 else 0
    quarters = range(int(part.index[0]) // 32, int(part.index[-1]) // 32 + 1)
    copies = [octets[32 * q + n % 32, at_b + n // 32, first : first + factors] for q in quarters]
    if all((c == copies[0]).all() for c in copies[1:]):
        return combine(how, left, right, old, mode, scale_a, copies[0])
    pieces = [slice(32 * i, 32 * i + 32) for i in range(len(copies))]
    out = [
        combine(how, rows(left, p), right, None if old is None else old[p], mode, scale_a[p], copy)
        for p, copy in zip(pieces, copies, strict=True)
    ]
    return np.concatenate(out)


def execute_copy(
    shared: SharedMemory,
    tensor: TensorMemory,
    to_address: int,
    descriptor: int,
    shape: str,
    multicast: str | None = None,
    format: str | None = None,
) -> None:
    """tcgen05.cp: a K-major matrix in shared memory to tensor memory, replicated as `multicast` says.

    format: `b8x16.b6x16_p32` or `b8x16.b4x16_p64` decompresses padded 6- or 4-bit elements to one a byte. Raises
    IllegalInstruction for columns that are not allocated and lanes that the shape cannot start at.
    """
    form: CopyShape = copy_shape(shape, multicast)
    lane, column = split_address(to_address)
    if lane and (shape != "4x256b" or lane >= 32):
        raise IllegalInstruction(f"tcgen05.cp.{shape} to lane {lane}; allowed: {'0..31' if shape == '4x256b' else '0'}")
    width = form.nbytes // 4
    tensor.check_columns(column, width, f"tcgen05.cp.{shape}")
    raw = operand(descriptor, form.rows, form.nbytes, 8, False, True).read(shared)
    if format is not None:
        raw = decompress(raw, format.removeprefix("b8x16."))
    words = np.ascontiguousarray(raw).view(np.uint32)
    for copy in form.lanes.T:
        tensor.words[copy + lane, column : column + width] = words
