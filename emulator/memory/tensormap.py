"""The 128-byte tensor map: its bits as the CUDA driver wrote them on an H200, decoded, encoded and patched.

Word 0-1 address; 2 type and modes; 3-6 strides of dimensions 1..4 in units of 16 bytes, their bits 32..35 in word 7;
8-12 dimensions - 1; 13 element strides - 1 (3 bits each) and box[0] - 1 (top byte); 14 box[1..4] - 1 (8 bits each).
In an im2col map the top byte of word 13 is channels - 1, word 14 holds the corners of the bounding box (see im2col.py)
and word 15 pixels - 1. The words behind mean nothing to the hardware: the driver keeps byte counts there, the compiler
leaves the upper half of a parameter unwritten.
Word 2: [0] im2col, [4:6] rank - 1, [7:10] type, [11:12] interleave, [13:14] swizzle, [15] NaN fill, [16] TF32,
[17:18] L2 promotion, [19:20] swizzle atomicity; bits 1 and 21 are set by the compiler's inline encoder and not by the
driver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from emulator.errors import IllegalInstruction
from emulator.memory import swizzle as sw
from emulator.memory.box import Geometry, box_geometry, pixel_geometry
from emulator.memory.im2col import MIN_RANK, Im2col

NBYTES = 128
MEANINGFUL = 64
MAX_RANK = 5
_IM2COL = 1
_KNOWN_FLAGS = 1 << 1 | 1 << 21
_FIELD_BITS = 0x1FFFF0


@dataclass(frozen=True)
class ElementType:
    """An element type. `bits` in global memory; `code` and `tf32` its bits in word 2; `driver` its number in
    CUtensorMapDataType; `ptx` its number in tensormap.replace .elemtype; `padded` types fill 16 bytes of shared memory
    with 16 elements whatever their width. `kind`: u, s, f or b (opaque bits)."""

    name: str
    bits: int
    code: int
    tf32: bool
    driver: int
    ptx: int
    kind: str
    padded: bool = False


ELEMENT_TYPES = (
    ElementType("u8", 8, 0, False, 0, 0, "u"),
    ElementType("u16", 16, 1, False, 1, 1, "u"),
    ElementType("u32", 32, 2, False, 2, 2, "u"),
    ElementType("s32", 32, 3, False, 3, 3, "s"),
    ElementType("u64", 64, 4, False, 4, 4, "u"),
    ElementType("s64", 64, 5, False, 5, 5, "s"),
    ElementType("f16", 16, 6, False, 6, 6, "f"),
    ElementType("f32", 32, 7, False, 7, 7, "f"),
    ElementType("f32ftz", 32, 8, False, 10, 8, "f"),
    ElementType("f64", 64, 9, False, 8, 9, "f"),
    ElementType("bf16", 16, 10, False, 9, 10, "f"),
    ElementType("tf32", 32, 7, True, 11, 11, "f"),
    ElementType("tf32ftz", 32, 8, True, 12, 12, "f"),
    ElementType("b4x16", 4, 11, False, 13, 13, "b"),
    ElementType("b4x16_p64", 4, 12, False, 14, 14, "b", padded=True),
    ElementType("b6x16_p32", 6, 13, False, 15, 15, "b", padded=True),
)
_BY_NAME = {t.name: t for t in ELEMENT_TYPES}
_BY_CODE = {(t.code, t.tf32): t for t in ELEMENT_TYPES}
_BY_DRIVER = {t.driver: t for t in ELEMENT_TYPES}
_BY_PTX = {t.ptx: t for t in ELEMENT_TYPES}
_SWIZZLES = (sw.NONE, sw.B32, sw.B64, sw.B128)
_ATOMICITIES = ("16B", "32B", "32B+8Bflip", "64B")


def element_type(name: str) -> ElementType:
    """The element type of that name; ValueError lists the names."""
    if name not in _BY_NAME:
        raise ValueError(f"element type {name!r}: allowed: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def driver_type(number: int) -> ElementType:
    """The element type of a CUtensorMapDataType number; ValueError for others."""
    if number not in _BY_DRIVER:
        raise ValueError(f"CUtensorMapDataType {number}: allowed: 0..{len(_BY_DRIVER) - 1}")
    return _BY_DRIVER[number]


@dataclass(frozen=True)
class TensorMap:
    """A tensor map. Dimension 0 is contiguous.

    dims, box, element_strides: `rank` ints (elements); strides: rank - 1 ints (bytes, dimension 1 upwards);
    interleave 0 none, 1 16B, 2 32B (dimension 0 then counts slices of so many bytes, and dimension rank - 2 the slices
    of the channels, of which a copy takes one); swizzle 0 none, 1 32B, 2 64B, 3 128B; atomicity 0 16B, 1 32B, 2 32B +
    8B flip, 3 64B; nan_fill: out-of-range elements become the special NaN instead of zero; l2: promotion hint, no
    effect;
    flags: bits of word 2 without a modelled meaning, kept so that encode(decode(x)) is x. im2col: None in tile mode;
    in im2col mode box[0] is the number of channels and the others are 1.
    """

    address: int
    element: ElementType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    atomicity: int = 0
    nan_fill: bool = False
    l2: int = 0
    flags: int = 0
    im2col: Im2col | None = None

    @property
    def unit(self) -> int:
        """Bytes that one step of the inner coordinate stands for, times 8: those of an element, or of a slice of 16 or
        32 bytes where the channels are interleaved."""
        return 128 << (self.interleave - 1) if self.interleave else self.element.bits

    @property
    def rank(self) -> int:
        """Number of dimensions, 1..5."""
        return len(self.dims)

    @property
    def pattern(self) -> sw.Swizzle:
        """The shared-memory swizzle; IllegalInstruction for the 8-byte flip, which is not modelled."""
        if self.swizzle != 3 or not self.atomicity:
            return _SWIZZLES[self.swizzle]
        if self.atomicity == 2:
            raise IllegalInstruction("tensor map: 128B swizzle with 32B atomicity and 8B flip is not modelled")
        return sw.B128_ATOM32 if self.atomicity == 1 else sw.B128_ATOM64

    @cached_property
    def geometry(self) -> Geometry:
        """Shape of the box; IllegalInstruction for a map that the hardware refuses or that is not modelled."""
        problems = self.problems()
        if self.interleave and (self.element_strides[0] > 1 or self.im2col):
            problems.append("interleaved maps with im2col or an inner element stride are not modelled")
        if problems:
            raise IllegalInstruction(f"tensor copy with a bad tensor map: {'; '.join(problems)}")
        kind = self.element
        if self.im2col:
            return pixel_geometry(self.im2col.pixels, self.box[0] * kind.bits // 8, self.rank, self.pattern)
        # A copy takes one slice of the channels, whatever the box says about them.
        box = (*self.box[:-2], 1, self.box[-1]) if self.interleave else self.box
        return box_geometry(box, self.element_strides, self.strides, self.unit, kind.padded, self.pattern)

    @classmethod
    def decode(cls, raw: Any) -> TensorMap:
        """From 128 bytes (anything with the buffer protocol; the last 64 are ignored).

        Raises IllegalInstruction when the bits are no tensor map: unknown type, rank above 5, unknown mode bits.
        """
        data = bytes(memoryview(raw).cast("B")[:MEANINGFUL])
        found = _DECODED.get(data)
        if found is None:
            if len(data) < MEANINGFUL:
                raise ValueError(f"TensorMap.decode: {len(data)} bytes; a tensor map has {NBYTES}")
            found = _decode([int(w) for w in np.frombuffer(data, "<u4")])
            _DECODED[data] = found
        return found

    def encode(self) -> bytes:
        """128 bytes, the upper 64 zero. Raises ValueError, naming the field, for values that do not fit their bits."""
        _check_fields(self)
        words = [0] * 32
        words[0], words[1] = self.address & 0xFFFFFFFF, self.address >> 32
        words[2] = (
            self.flags
            | (self.rank - 1) << 4
            | self.element.code << 7
            | self.interleave << 11
            | self.swizzle << 13
            | int(self.nan_fill) << 15
            | int(self.element.tf32) << 16
            | self.l2 << 17
            | self.atomicity << 19
        )
        for i, stride in enumerate(self.strides):
            words[3 + i] = stride >> 4 & 0xFFFFFFFF
            words[7] |= stride >> 36 << 4 * i
        for i, (dim, box, step) in enumerate(zip(self.dims, self.box, self.element_strides, strict=True)):
            words[8 + i] = dim - 1
            words[13] |= (step - 1) << 3 * i
            word, shift = (14, 8 * (i - 1)) if i else (13, 24)
            words[word] |= (box - 1) << shift
        if self.im2col:
            words[2] |= _IM2COL
            words[14:16] = self.im2col.words(self.rank)
        return np.array(words, "<u4").tobytes()

    def replace(self, field: str, ordinal: int, value: int) -> TensorMap:
        """What `tensormap.replace.tile.<field>` makes of this map; see `replace_field`."""
        return TensorMap.decode(replace_field(self.encode(), field, ordinal, value))

    def with_address(self, address: int) -> TensorMap:
        """The same map over another base address."""
        return replace(self, address=address)

    def problems(self) -> list[str]:
        """Why cuTensorMapEncodeTiled would refuse this map; empty when it would not."""
        found: list[str] = []
        add = found.append
        align = 32 if self.interleave == 2 or self.element.padded else 16
        if self.address % align:
            add(f"address {self.address:#x} is not a multiple of {align}")
        for i, stride in enumerate(self.strides, 1):
            if stride % align:
                add(f"stride of dimension {i} is {stride} bytes, not a multiple of {align}")
            if not 0 <= stride < 1 << 40:
                add(f"stride of dimension {i} is {stride} bytes; limit 2^40")
        for name, values, top in (("box", self.box, 256), ("element stride", self.element_strides, 8)):
            for i, value in enumerate(values):
                if not 1 <= value <= top:
                    add(f"{name} of dimension {i} is {value}; allowed 1..{top}")
        for i, dim in enumerate(self.dims):
            if not 1 <= dim <= 1 << 32:
                add(f"dimension {i} is {dim}; allowed 1..2^32")
        inner = self.box[0] * self.element.bits
        if inner % 128:
            add(f"inner box is {inner / 8:g} bytes, not a multiple of 16")
        if (
            not self.interleave
            and self.swizzle
            and not self.element.padded
            and inner > 8 * _SWIZZLES[self.swizzle].span
        ):
            add(f"inner box is {inner / 8:g} bytes, more than the swizzle span of {_SWIZZLES[self.swizzle].span}")
        if self.interleave and self.rank < 3:
            add(f"interleave needs rank 3 or more, not {self.rank}")
        if self.interleave == 2 and self.swizzle != 1:
            add("interleave 32B needs the 32B swizzle")
        if self.nan_fill and self.element.kind != "f":
            add(f"NaN fill with type {self.element.name}")
        if self.atomicity and self.swizzle != 3:
            add("swizzle atomicity other than 16B needs the 128B swizzle")
        boxed = self.im2col.problems(self.dims) if self.im2col else []
        return found + _narrow_problems(self) + boxed


def _narrow_problems(tmap: TensorMap) -> list[str]:
    """Restrictions of the 4- and 6-bit types (PTX "Restriction on Tensor Copy instructions")."""
    found: list[str] = []
    if tmap.element.name == "b4x16" and tmap.dims[0] % 2:
        found.append(f"dimension 0 is {tmap.dims[0]}; type b4x16 needs an even number")
    if tmap.element.padded:
        if tmap.box[0] != 128:
            found.append(f"inner box is {tmap.box[0]} elements; type {tmap.element.name} needs 128")
        if tmap.dims[0] % 128:
            found.append(f"dimension 0 is {tmap.dims[0]}; type {tmap.element.name} needs a multiple of 128")
        if tmap.swizzle not in (0, 3) or tmap.atomicity == 2:
            found.append(f"type {tmap.element.name} needs no swizzle or 128B without flip")
    return found


_DECODED: dict[bytes, TensorMap] = {}


def _decode(words: list[int]) -> TensorMap:
    mode = words[2]
    rank = (mode >> 4 & 7) + 1
    flags = mode & ~_FIELD_BITS & ~(3 << 19) & ~_IM2COL
    element = _BY_CODE.get((mode >> 7 & 15, bool(mode >> 16 & 1)))
    flat = mode & _IM2COL and rank < MIN_RANK
    if element is None or flat or rank > MAX_RANK or flags & ~_KNOWN_FLAGS or mode >> 11 & 3 == 3:
        raise IllegalInstruction(
            f"not a tensor map: word 2 is {mode:#010x} (rank {rank}, type {mode >> 7 & 15}, "
            f"interleave {mode >> 11 & 3}, other bits {flags:#x})"
        )
    strides = [(words[3 + i] | (words[7] >> 4 * i & 15) << 32) << 4 for i in range(rank - 1)]
    boxed = Im2col.decode(words[14], words[15], rank) if mode & _IM2COL else None
    boxes = [words[13] >> 24] + [0 if boxed else words[14] >> 8 * i & 255 for i in range(4)]
    return TensorMap(
        address=words[0] | words[1] << 32,
        element=element,
        dims=tuple(w + 1 for w in words[8 : 8 + rank]),
        strides=tuple(strides),
        box=tuple(b + 1 for b in boxes[:rank]),
        element_strides=tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)),
        interleave=mode >> 11 & 3,
        swizzle=mode >> 13 & 3,
        atomicity=mode >> 19 & 3,
        nan_fill=bool(mode >> 15 & 1),
        l2=mode >> 17 & 3,
        flags=flags,
        im2col=boxed,
    )


def _check_fields(tmap: TensorMap) -> None:
    """ValueError unless every field fits its bits."""
    rank = tmap.rank
    limits: list[tuple[str, int, int, int]] = [
        ("rank", rank, 1, MAX_RANK),
        ("len(strides)", len(tmap.strides), rank - 1, rank - 1),
        ("len(box)", len(tmap.box), rank, rank),
        ("len(element_strides)", len(tmap.element_strides), rank, rank),
        ("address", tmap.address, 0, (1 << 64) - 1),
        ("interleave", tmap.interleave, 0, 2),
        ("swizzle", tmap.swizzle, 0, 3),
        ("atomicity", tmap.atomicity, 0, 3),
        ("l2", tmap.l2, 0, 3),
    ]
    limits += [(f"dims[{i}]", v, 1, 1 << 32) for i, v in enumerate(tmap.dims)]
    limits += [(f"strides[{i}]", v, 0, (1 << 40) - 16) for i, v in enumerate(tmap.strides)]
    limits += [(f"box[{i}]", v, 1, 256) for i, v in enumerate(tmap.box)]
    limits += [(f"element_strides[{i}]", v, 1, 8) for i, v in enumerate(tmap.element_strides)]
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise ValueError(f"TensorMap.{name}={value}: allowed {low}..{high}")
    for i, stride in enumerate(tmap.strides):
        if stride % 16:
            raise ValueError(f"TensorMap.strides[{i}]={stride}: must be a multiple of 16 bytes")
    if tmap.flags & ~_KNOWN_FLAGS:
        raise ValueError(f"TensorMap.flags={tmap.flags:#x}: allowed bits {_KNOWN_FLAGS:#x}")


# field -> (word, lowest bit, bits) of ordinal 0; None where the field is handled by itself.
_SCALARS = {"rank": (2, 4, 3), "interleave_layout": (2, 11, 2), "swizzle_mode": (2, 13, 2), "fill_mode": (2, 15, 1)}
_SCALARS["swizzle_atomicity"] = (2, 19, 2)
_LIMITS = {"rank": 4, "interleave_layout": 2, "swizzle_mode": 3, "fill_mode": 1, "swizzle_atomicity": 3}
REPLACE_FIELDS = (*_SCALARS, "global_address", "global_dim", "global_stride", "box_dim", "element_stride", "elemtype")


def replace_field(raw: Any, field: str, ordinal: int, value: int) -> bytes:
    """The 128 bytes after `tensormap.replace.tile.<field> [..], ordinal, value`; other bits stay as they were.

    Units as in PTX: dimensions, boxes and element strides in elements, strides in bytes, rank minus one, enumerations
    by the table of tensormap.replace. Raises IllegalInstruction, naming field and value, for what PTX does not define.
    """
    words = np.frombuffer(bytes(memoryview(raw).cast("B")[:NBYTES]), "<u4").copy()

    def put(word: int, low: int, bits: int, number: int) -> None:
        mask = ((1 << bits) - 1) << low
        words[word] = np.uint32((int(words[word]) & ~mask) | (number << low & mask))

    def need(low: int, high: int) -> None:
        if not low <= value <= high:
            raise IllegalInstruction(f"tensormap.replace.{field}: value {value}; allowed {low}..{high}")

    if field not in REPLACE_FIELDS:
        raise IllegalInstruction(f"tensormap.replace.{field}: no such field; allowed: {', '.join(REPLACE_FIELDS)}")
    last = 3 if field == "global_stride" else 4
    if not 0 <= ordinal <= last:
        raise IllegalInstruction(f"tensormap.replace.{field}: ordinal {ordinal}; allowed 0..{last}")
    if field in _SCALARS:
        need(0, _LIMITS[field])
        put(*_SCALARS[field], value)
    elif field == "global_address":
        put(0, 0, 32, value)
        put(1, 0, 32, value >> 32)
    elif field == "global_dim":
        # A 32-bit operand: 0 stands for 2^32, the only size that does not fit.
        put(8 + ordinal, 0, 32, value - 1)
    elif field == "global_stride":
        if value % 16 or not 0 <= value < 1 << 40:
            raise IllegalInstruction(f"tensormap.replace.global_stride: {value} bytes; a multiple of 16 below 2^40")
        put(3 + ordinal, 0, 32, value >> 4)
        put(7, 4 * ordinal, 4, value >> 36)
    elif field == "box_dim":
        need(1, 256)
        put(*((14, 8 * (ordinal - 1), 8) if ordinal else (13, 24, 8)), value - 1)
    elif field == "element_stride":
        need(1, 8)
        put(13, 3 * ordinal, 3, value - 1)
    else:
        need(0, len(_BY_PTX) - 1)
        put(2, 7, 4, _BY_PTX[value].code)
        put(2, 16, 1, int(_BY_PTX[value].tf32))
    return words.tobytes()
