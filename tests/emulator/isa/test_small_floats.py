"""Conversions to and from 8, 6 and 4 bit floats and powers of two, from the definition of the formats."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.isa.harness import Code

# exponent bits, mantissa bits, bias, largest finite code, codes from there on that are not finite
FORMATS = {"e4m3": (4, 3, 7, 0x7E), "e5m2": (5, 2, 15, 0x7B), "e2m3": (2, 3, 1, 0x1F), "e3m2": (3, 2, 3, 0x1F)}
FORMATS |= {"e2m1": (2, 1, 1, 0x7)}
_REGISTERS = {"a": "b32", "b": "b32", "d": "b32", "h": "b16", "c": "b8"}


def values(kind: str) -> np.ndarray:
    """The non-negative finite numbers of a format in the order of their codes."""
    _, mantissa, bias, largest = FORMATS[kind]
    codes = np.arange(largest + 1)
    exponent, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    scale = np.ldexp(1.0, np.maximum(exponent, 1) - bias - mantissa)
    return (np.where(exponent > 0, fraction + (1 << mantissa), fraction) * scale).astype(np.float32)


def encode(kind: str, x: np.ndarray, modifiers: str = "") -> np.ndarray:
    """Codes of any number of f32, through the pair instruction with the numbers in both places."""
    target = "c" if kind == "e2m1" else "h"
    code = Code(f"cvt.rn.satfinite{modifiers}.{kind}x2.f32 {target},a,b;", _REGISTERS)
    shift = 4 if kind == "e2m1" else 8
    out = []
    for start in range(0, len(x), 32):
        piece = np.resize(x[start : start + 32], 32).astype(np.float32)
        pair = code(a=piece.view(np.uint32), b=piece[::-1].copy().view(np.uint32))[target].astype(int)
        high, low = pair >> shift, (pair & ((1 << shift) - 1))[::-1]
        assert (high == low).all()
        out.append(high[: len(x) - start])
    return np.concatenate(out)


@pytest.mark.parametrize("kind", FORMATS)
def test_encode_rounds_to_nearest_even(kind: str) -> None:
    """Every number of the format, every midpoint, and the floats on either side of it, with both signs."""
    exact = values(kind)
    codes = np.arange(len(exact))
    middle = ((exact[1:].astype(float) + exact[:-1]) / 2).astype(np.float32)
    even = np.where(codes[:-1] % 2 == 0, codes[:-1], codes[1:])
    sign = 1 << sum(FORMATS[kind][:2])
    assert (encode(kind, exact) == codes).all() and (encode(kind, -exact) == codes + sign).all()
    assert (encode(kind, middle) == even).all()
    assert (encode(kind, np.nextafter(middle, np.float32(np.inf))) == codes[1:]).all()
    assert (encode(kind, -np.nextafter(middle, np.float32(0))) == codes[:-1] + sign).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_encode_specials(kind: str) -> None:
    """Overflow and infinities clamp; NaN is 0x7F, or the largest number where the format has no NaN; relu clears."""
    largest, sign = FORMATS[kind][3], 1 << sum(FORMATS[kind][:2])
    nan = 0x7F if kind in ("e4m3", "e5m2") else largest
    x = np.array([np.inf, -np.inf, 3e38, np.nan, -0.0, 1e-40, -1e-40], np.float32)
    assert encode(kind, x).tolist() == [largest, largest + sign, largest, nan, sign, 0, sign]
    assert encode(kind, x, ".relu").tolist() == [largest, 0, largest, nan, 0, 0, 0]


@pytest.mark.parametrize("kind", FORMATS)
def test_encode_from_packed_halves(kind: str) -> None:
    """f16x2 and bf16x2 sources give what their values give as f32; the upper half goes to the upper place."""
    rng = np.random.default_rng(7)
    target = "c" if kind == "e2m1" else "h"
    scale = float(values(kind)[-1])
    high, low = (rng.uniform(-1.5, 1.5, 32).astype(np.float32) * np.float32(scale) for _ in range(2))
    with np.errstate(over="ignore"):
        halves = {"f16x2": [x.astype(np.float16).view(np.uint16) for x in (low, high)]}
    halves["bf16x2"] = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (low, high)]
    for type, (lo, hi) in halves.items():
        back = [x.view(np.float16).astype(np.float32) for x in (hi, lo)]
        if type == "bf16x2":
            back = [(x.astype(np.uint32) << 16).view(np.float32) for x in (hi, lo)]
        packed = np.stack((lo, hi), axis=1).reshape(-1).view(np.uint32)
        got = Code(f"cvt.rn.satfinite.{kind}x2.{type} {target},a;", _REGISTERS)(a=packed)[target]
        want = Code(f"cvt.rn.satfinite.{kind}x2.f32 {target},a,b;", _REGISTERS)(
            a=back[0].view(np.uint32), b=back[1].view(np.uint32)
        )[target]
        assert (got == want).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_decode_every_code(kind: str) -> None:
    """All codes of both places; unused high bits of a byte do not matter; NaN is 0x7FFF."""
    exact = values(kind).astype(np.float16).view(np.uint16)
    width = 1 + sum(FORMATS[kind][:2])
    half = 1 << (width - 1)
    table = np.full(half, 0x7FFF, np.uint16)
    table[: len(exact)] = exact
    if kind == "e5m2":
        table[0x7C] = 0x7C00
    table = np.concatenate((table, np.where(table == 0x7FFF, table, table | 0x8000)))
    source = "c" if kind == "e2m1" else "h"
    for relu in ("", ".relu"):
        code = Code(f"cvt.rn{relu}.f16x2.{kind}x2 d,{source};", _REGISTERS)
        for start in range(0, 2 * half, 32):
            codes = (np.arange(start, start + 32) % (2 * half)).astype(np.uint16)
            other = codes[::-1]
            packed = (codes << 4 | other).astype(np.uint8) if kind == "e2m1" else codes << 8 | other
            got = code(**{source: packed})["d"]
            want = table.copy()
            if relu:
                want[half:] = np.where(table[half:] == 0x7FFF, 0x7FFF, 0)
            assert (got >> 16 == want[codes]).all() and (got & 0xFFFF == want[other]).all()


def test_e2m1_is_what_the_manual_lists() -> None:
    """The eight numbers of e2m1."""
    assert values("e2m1").tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


# ---------------------------------------------------------------- powers of two
_SCALES = {  # value: code toward zero, code upward
    0.0: (0, 0),
    1e-45: (0, 0),
    2.0**-127: (0, 0),
    2.0**-127 * (1 + 2**-22): (0, 1),
    2.0**-126: (1, 1),
    1.0: (127, 127),
    1.0000001: (127, 128),
    -3.0: (128, 129),
    2.0**127: (254, 254),
    3e38: (254, 255),
    np.inf: (255, 255),
    np.nan: (255, 255),
}


@pytest.mark.parametrize("place", [0, 1])
def test_encode_scales(place: int) -> None:
    """The exponent of |x|, down or up; what exceeds 2^127 is NaN, or 2^127 with .satfinite."""
    for value, (down, up) in _SCALES.items():
        x = np.full(32, np.float32(value)).view(np.uint32)
        operands = {"a": x, "b": x * np.uint32(0)} if place else {"a": x * np.uint32(0), "b": x}
        for rnd, want in (("rz", down), ("rp", up)):
            got = Code(f"cvt.{rnd}.ue8m0x2.f32 h,a,b;", _REGISTERS)(**operands)["h"] >> (8 * place)
            assert (got == want).all(), (value, rnd)
            clamped = Code(f"cvt.{rnd}.satfinite.ue8m0x2.f32 h,a,b;", _REGISTERS)(**operands)["h"] >> (8 * place)
            assert (clamped == (want if np.isnan(value) else min(want, 254))).all(), (value, rnd)


def test_scales_of_bf16_and_back() -> None:
    """bf16x2 to ue8m0x2 rounds like f32; every code comes back as its power of two."""
    packed = np.full(32, 0x40403F80, np.uint32)  # 3.0 above 1.0
    assert (Code("cvt.rz.ue8m0x2.bf16x2 h,a;", _REGISTERS)(a=packed)["h"] == 0x807F).all()
    assert (Code("cvt.rp.satfinite.ue8m0x2.bf16x2 h,a;", _REGISTERS)(a=packed)["h"] == 0x817F).all()
    code = Code("cvt.rn.bf16x2.ue8m0x2 d,h;", _REGISTERS)
    for start in range(0, 256, 32):
        codes = np.arange(start, start + 32).astype(np.uint16)
        got = code(h=codes << 8 | codes[::-1])["d"]
        high = (got & np.uint32(0xFFFF0000)).view(np.float32)
        low = (got << np.uint32(16)).view(np.float32)
        want = np.where(codes < 255, np.ldexp(1.0, codes.astype(int) - 127), np.nan)
        assert np.array_equal(high, want, equal_nan=True) and np.array_equal(low, want[::-1], equal_nan=True)


# ---------------------------------------------------------------- tf32 on sm_100a
def test_tf32_satfinite() -> None:
    """rn and rz with .satfinite clamp to the largest tf32 (PTX ISA 9.7.9.21); NaN stays NaN; relu clears negatives."""
    words = np.resize(np.array([0x7F7FFFFF, 0xFF800000, 0x3F801000, 0x3F803000, 0xBF801FFF, 0x7FC12345], np.uint32), 32)
    rn = Code("cvt.rn.satfinite.tf32.f32 d,a;", _REGISTERS)(a=words)["d"][:6]
    assert [hex(v) for v in rn] == ["0x7f7fe000", "0xff7fe000", "0x3f800000", "0x3f804000", "0xbf802000", "0x7fffe000"]
    rz = Code("cvt.rz.relu.satfinite.tf32.f32 d,a;", _REGISTERS)(a=words)["d"][:6]
    assert [hex(v) for v in rz] == ["0x7f7fe000", "0x0", "0x3f800000", "0x3f802000", "0x0", "0x7fffe000"]
