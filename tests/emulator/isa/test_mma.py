"""mma.sync beyond the captured forms: f64, eight rows, sparse integers, and what is refused.

The float arithmetic and the fragments of 16 rows are held against captured words in tests/emulator/goldens.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import emulator
from emulator.errors import IllegalInstruction, UnknownInstruction
from emulator.memory.globals import GlobalMemory
from emulator.units import fragments

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
RNG = np.random.default_rng(5)


def run(
    opcode: str, groups: list[np.ndarray], tail: str = "", wide: bool = False, before: str = "", **more: Any
) -> Any:
    """D registers [n, 32] of one instruction on register groups A, B, C (each [n, 32]) and, with `tail`, a metadata
    group of one register."""
    bits, size = ("b64", 8) if wide else ("b32", 4)
    names, text, memory, places = "abce", [], GlobalMemory(), []
    declared = " ".join(f".reg .{bits} %{names[k]}<{len(g)}>;" for k, g in enumerate(groups[:3]))
    if len(groups) == 4:
        declared += " .reg .b32 %e<1>;"
    for k, group in enumerate(groups):
        region = memory.allocate(group.nbytes, f"operand {k}")
        region.views[1][:] = np.ascontiguousarray(group).view(np.uint8).ravel()
        places.append(region)
        each = 4 if k == 3 else size
        text.append(f"ld.param.u64 %rd1, [p{k}]; mul.wide.u32 %rd2, %r1, {each}; add.s64 %rd1, %rd1, %rd2;")
        for n in range(len(group)):
            text.append(f"ld.global.{'b32' if k == 3 else bits} %{names[k]}{n}, [%rd1+{32 * each * n}];")
    a, b, c = ("{" + ", ".join(f"%{names[k]}{n}" for n in range(len(groups[k]))) + "}" for k in range(3))
    d = places[2]
    text.append(f"{before} {opcode} {c}, {a}, {b}, {c}{tail}; ld.param.u64 %rd1, [p2]; add.s64 %rd1, %rd1, %rd3;")
    text += [f"st.global.{bits} [%rd1+{32 * size * n}], %c{n};" for n in range(len(groups[2]))]
    params = ", ".join(f".param .u64 p{k}" for k in range(len(groups)))
    kernel = f"{HEADER}.entry k({params}) {{ .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<4>; {declared}\n"
    kernel += f"mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, {size};\n" + "\n".join(text) + "\nret; }"
    arguments = [p.address.to_bytes(8, "little") for p in places]
    emulator.run(emulator.parse(kernel), "k", (1, 1, 1), (32, 1, 1), arguments, memory, arithmetic="exact", **more)
    return d.views[size].reshape(len(groups[2]), 32).copy()


def packed(matrix: np.ndarray, word: type = np.uint32) -> np.ndarray:
    """A matrix [rows, words] as registers of A (16 or 8 rows) or B: register i, lane 4 g + t."""
    words = np.ascontiguousarray(matrix).view(word)
    if words.shape[0] == 16:
        return np.ascontiguousarray(words.reshape(2, 8, -1, 4).transpose(2, 0, 1, 3)).reshape(-1, 32)
    return np.ascontiguousarray(words.reshape(8, -1, 4).transpose(1, 0, 2)).reshape(-1, 32)


@pytest.mark.parametrize(("rows", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_f64_is_a_chain_of_fused_multiply_adds(rows: int, k: int) -> None:
    a, b, c = RNG.normal(size=(rows, k)), RNG.normal(size=(8, k)), RNG.normal(size=(rows, 8))
    a[0, 0], c[1, 0] = np.inf, np.nan
    groups = [packed(a.view(np.uint64), np.uint64), packed(b.view(np.uint64), np.uint64)]
    groups.append(fragments.registers_of(c.view(np.uint64)))
    got = run(f"mma.sync.aligned.m{rows}n8k{k}.row.col.f64.f64.f64.f64", groups, wide=True)
    d = fragments.accumulator([*got]).view(np.float64)
    for m in range(2, rows):
        for n in range(8):
            total = float(c[m, n])
            for i in range(k):
                total = float(Fraction(a[m, i]) * Fraction(b[n, i]) + Fraction(total))
            assert d[m, n] == total
    assert np.isinf(d[0]).all() and math.isnan(d[1, 0]) and not np.isnan(d[1, 1:]).any()


@pytest.mark.parametrize(
    ("shape", "kind"), [("m8n8k16", "s8"), ("m8n8k16", "u8"), ("m8n8k32", "s4"), ("m8n8k32", "u4")]
)
@pytest.mark.parametrize("saturate", [False, True])
def test_eight_rows_of_integers(shape: str, kind: str, saturate: bool) -> None:
    k, narrow = int(shape.split("k")[1]), kind[1] == "4"
    low, high = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}[kind]
    a, b = RNG.integers(low, high, (8, k)), RNG.integers(low, high, (8, k))
    c = RNG.integers(-(1 << 31), 1 << 31, (8, 8))
    raw = [_nibbles(x) if narrow else x.astype(np.int16).astype(np.uint8) for x in (a, b)]
    groups = [packed(x) for x in raw] + [fragments.registers_of(c.astype(np.int32).view(np.uint32))]
    sat = ".satfinite" if saturate else ""
    got = run(f"mma.sync.aligned.{shape}.row.col{sat}.s32.{kind}.{kind}.s32", groups)
    want = a @ b.T + c
    want = np.clip(want, -(1 << 31), (1 << 31) - 1) if saturate else want.astype(np.int32)
    assert (fragments.accumulator([*got]).view(np.int32) == want).all()


def _nibbles(values: np.ndarray) -> np.ndarray:
    codes = (values & 15).astype(np.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4


@pytest.mark.parametrize(("rows", "k"), [(8, 128), (16, 128), (16, 256)])
@pytest.mark.parametrize("bit", ["xor", "and"])
def test_one_bit(rows: int, k: int, bit: str) -> None:
    a, b = (RNG.integers(0, 256, (n, k // 8), dtype=np.uint8) for n in (rows, 8))
    c = RNG.integers(0, 1000, (rows, 8)).astype(np.uint32)
    x, y = (np.unpackbits(m, axis=1).astype(bool) for m in (a, b))
    joined = x[:, None] ^ y if bit == "xor" else x[:, None] & y
    groups = [packed(a), packed(b), fragments.registers_of(c)]
    got = run(f"mma.sync.aligned.m{rows}n8k{k}.row.col.s32.b1.b1.s32.{bit}.popc", groups)
    assert (fragments.accumulator([*got]) == joined.sum(-1) + c).all()


@pytest.mark.parametrize(("kind", "k"), [("s8", 32), ("u8", 64), ("s4", 64), ("u4", 128)])
@pytest.mark.parametrize("ordered", ["", "::ordered_metadata"])
def test_sparse_integers(kind: str, k: int, ordered: str) -> None:
    """k = 64 (8 bits) has the metadata layout of the captured 8-bit floats; the shorter and narrower ones follow it."""
    low, high = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}[kind]
    narrow = kind[1] == "4"
    a, b = RNG.integers(low, high, (16, k // 2)), RNG.integers(low, high, (8, k))
    groups_per_row = k // 8 if narrow else k // 4
    codes = np.array([4, 8, 9, 12, 13, 14])[RNG.integers(0, 6, (16, groups_per_row))]
    selector = 0 if groups_per_row == 16 else 1
    dense, metadata = np.zeros((16, k), np.int64), np.zeros((1, 32), np.uint32)
    width = 2 if narrow else 1
    for row in range(16):
        for n, code in enumerate(codes[row]):
            for half, place in enumerate((code & 3, code >> 2)):
                to, start = width * (4 * n + place), width * (2 * n + half)
                dense[row, to : to + width] = a[row, start : start + width]
            lane = 4 * (row % 8) + row // 8 + (2 * (n // 8) if groups_per_row == 16 else 2 * selector)
            metadata[0, lane] |= np.uint32(int(code) << 4 * (n % 8))
    c = RNG.integers(-999, 999, (16, 8)).astype(np.int32)
    raw = [_nibbles(x) if narrow else x.astype(np.int16).astype(np.uint8) for x in (a, b)]
    groups = [packed(x) for x in raw] + [fragments.registers_of(c.view(np.uint32)), metadata]
    got = run(f"mma.sp{ordered}.sync.aligned.m16n8k{k}.row.col.s32.{kind}.{kind}.s32", groups, f", %e0, {selector}")
    assert (fragments.accumulator([*got]).view(np.int32) == dense @ b.T + c).all()


# ---------------------------------------------------------------- what is refused
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def _zeros(*counts: int) -> list[np.ndarray]:
    return [np.zeros((n, 32), np.uint32) for n in counts]


def test_all_lanes_must_take_part() -> None:
    with pytest.raises(IllegalInstruction, match=r"mma.sync: lanes \[0, 1, 2\] do not execute it; all 32 must"):
        run(F16, _zeros(4, 2, 4), before="setp.lt.u32 %p1, %r1, 3; @%p1 exit;")


@pytest.mark.parametrize(
    ("opcode", "counts", "tail", "reason"),
    [
        (F16, (2, 2, 4), "", r"D, A, B and C have \(4, 2, 2, 4\) registers; this shape needs \(4, 4, 2, 4\)"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", (4, 2, 4), "", "no implemented form"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", (4, 2, 4), "", "no implemented form"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", (2, 2, 8), "", "this Volta shape computes four products"),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32",
            (4, 2, 4),
            "",
            "block-scaled and narrow mma.sync exists on sm_120 only",
        ),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", (4, 4, 4, 1), ", %e0, 2", "sparsity selector 2"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", (4, 4, 4, 1), ", %e0, %e0", "sparsity selector None"),
    ],
)
def test_forms_that_do_not_exist(opcode: str, counts: tuple[int, ...], tail: str, reason: str) -> None:
    with pytest.raises(UnknownInstruction, match=reason):
        run(opcode, _zeros(*counts), tail)
