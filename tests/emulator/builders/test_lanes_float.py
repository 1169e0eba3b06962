"""Float lane functions against an exact rational model, on hostile operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.builders import lanes
from emulator.builders.lanes_float import sum_error
from tests.emulator.builders import rational

MODES = ("rn", "rz", "rm", "rp")
_FORMATS = {"f16": rational.F16, "bf16": rational.BF16, "f32": rational.F32, "f64": rational.F64}


def patterns(f: rational.Format) -> st.SearchStrategy[int]:
    """Patterns of a format: any, near powers of two, few digits, subnormals, and the specials."""
    sign = 1 << (f.width - 1)
    hidden, infinity = 1 << f.stored, f.infinity
    special = [0, 1, 2, hidden - 1, hidden, hidden + 1, infinity - 1, infinity, infinity + 1]
    exponents = st.integers(0, (1 << (f.width - f.digits)) - 2)
    fractions = st.sampled_from([0, 1, hidden >> 1, hidden - 1, hidden - 2, 5, 3 * hidden >> 3])
    near = st.builds(lambda e, m: e << f.stored | m, exponents, fractions)
    one = ((1 << (f.width - f.digits - 1)) - 1) << f.stored
    middling = st.integers(one - (12 << f.stored), one + (12 << f.stored))
    unsigned = st.one_of(st.sampled_from(special), near, middling, st.integers(0, sign - 1))
    return st.builds(lambda m, s: m | sign * s, unsigned, st.booleans())


def operands(kind: str, count: int) -> st.SearchStrategy[list[np.ndarray]]:
    """`count` arrays of 32 patterns."""
    f = _FORMATS[kind]
    lane = st.lists(patterns(f), min_size=32, max_size=32).map(lambda v: np.array(v, f"u{f.width // 8}"))
    return st.lists(lane, min_size=count, max_size=count)


def check(kind: str, got: np.ndarray, model: Callable[..., int], arrays: list[np.ndarray], *settings_: object) -> None:
    """Every lane against the model."""
    f = _FORMATS[kind]
    raw = got.view(f"u{f.width // 8}").copy()
    raw[np.isnan(got)] = f.nan
    for k in range(32):
        lane = [int(a[k]) for a in arrays]
        want = model(f, *lane, *settings_)
        assert int(raw[k]) == want, (settings_, [hex(v) for v in lane], hex(int(raw[k])), hex(want))


@given(operands("f32", 3), st.sampled_from(MODES), st.booleans())
@settings(max_examples=40, deadline=None)
def test_f32_in_every_mode(arrays: list[np.ndarray], rnd: str, ftz: bool) -> None:
    """add, mul, fma, div, sqrt of f32, with and without flushing."""
    a, b, c = (x.view(np.float32) for x in arrays)
    with np.errstate(all="ignore"):
        check("f32", lanes.fma_f32(a, b, c, rnd, ftz), rational.fused, arrays, rnd, ftz)
        check("f32", lanes.add_f32(a, b, rnd, ftz), rational.added, arrays[:2], rnd, ftz)
        check("f32", lanes.mul_f32(a, b, rnd, ftz), rational.multiplied, arrays[:2], rnd, ftz)
        check("f32", lanes.div_f32(a, b, rnd, ftz), rational.divided, arrays[:2], rnd, ftz)
        check("f32", lanes.sqrt_f32(a, rnd, ftz), rational.rooted, arrays[:1], rnd, ftz)


_ODD = st.integers(1 << 11, (1 << 12) - 1).map(lambda n: 2 * n + 1)


@given(
    st.lists(st.tuples(_ODD, _ODD), min_size=32, max_size=32),
    st.integers(-60, 60),
    st.integers(31, 80),
    st.booleans(),
    st.sampled_from(MODES),
)
@settings(max_examples=40, deadline=None)
def test_fma_f32_beside_ties(factors: list[tuple[int, int]], scale: int, depth: int, negative: bool, rnd: str) -> None:
    """A product of 25 bits lies on a tie of f32; float64 cannot hold the little addend that decides it."""
    a, b = (np.ldexp(np.array(column, np.float32), scale) for column in zip(*factors, strict=True))
    c = np.full(32, np.ldexp(-1.0 if negative else 1.0, 2 * scale - depth), np.float32)
    arrays = [x.view(np.uint32) for x in (a, b, c)]
    with np.errstate(all="ignore"):
        check("f32", lanes.fma_f32(a, b, c, rnd), rational.fused, arrays, rnd, False)
        check("f32", lanes.fma_f32(-a, b, c, rnd), rational.fused, [(-a).view(np.uint32), *arrays[1:]], rnd, False)


@pytest.mark.parametrize("rnd", MODES)
def test_fma_f32_beside_ties_of_subnormals(rnd: str) -> None:
    """2^-150 * (1 - 2^-46) beside odd and even subnormals: just under half of the last place."""
    codes = np.concatenate((np.arange(1, 17), np.arange(0x007FFFF0, 0x00800000))).astype(np.uint32)
    a = np.full(32, 2.0**-75 * (1 + 2.0**-23), np.float32)
    for b in (2.0**-75 * (1 - 2.0**-23), 2.0**-75, -(2.0**-75) * (1 - 2.0**-23)):
        factor = np.full(32, b, np.float32)
        for c in (codes, codes | np.uint32(0x80000000)):
            arrays = [a.view(np.uint32), factor.view(np.uint32), c]
            check("f32", lanes.fma_f32(a, factor, c.view(np.float32), rnd), rational.fused, arrays, rnd, False)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_fma_beside_ties(kind: str) -> None:
    """The same for half types: products on a tie, and an addend far below."""
    f = _FORMATS[kind]
    digits = np.arange(32, dtype=np.uint16) * 2 + 1
    one = f.pattern(rational.Fraction(1), "rn")
    a = (np.uint16(one) + digits).astype(np.uint16)
    b = np.full(32, f.pattern(rational.Fraction(3, 2), "rn"), np.uint16)
    for addend in (2.0**-22, -(2.0**-22), 2.0**-100, -(2.0**-100)):
        c = np.full(32, f.pattern(rational.Fraction(addend), "rn"), np.uint16)
        got = lanes.half_fma(a, b, c, kind)
        want = [rational.fused(f, *(int(v[k]) for v in (a, b, c)), "rn") for k in range(32)]
        assert got.tolist() == want


@given(operands("f64", 3), st.sampled_from(MODES))
@settings(max_examples=10, deadline=None)
def test_f64_in_every_mode(arrays: list[np.ndarray], rnd: str) -> None:
    """add, mul, fma, div, sqrt of f64 (NaN payloads are not compared)."""
    a, b, c = (x.view(np.float64) for x in arrays)
    with np.errstate(all="ignore"):
        check("f64", lanes.fma_f64(a, b, c, rnd), rational.fused, arrays, rnd)
        check("f64", lanes.add_f64(a, b, rnd), rational.added, arrays[:2], rnd)
        check("f64", lanes.mul_f64(a, b, rnd), rational.multiplied, arrays[:2], rnd)
        check("f64", lanes.div_f64(a, b, rnd), rational.divided, arrays[:2], rnd)
        check("f64", lanes.sqrt_f64(a, rnd), rational.rooted, arrays[:1], rnd)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@given(data=st.data(), ftz=st.booleans())
@settings(max_examples=25, deadline=None)
def test_half_arithmetic(kind: str, data: st.DataObject, ftz: bool) -> None:
    """add, mul, fma of half types, scalar and packed (bf16 has no flushing in PTX; the function has)."""
    arrays = data.draw(operands(kind, 3))
    f = _FORMATS[kind]
    model = {"half_add": rational.added, "half_mul": rational.multiplied, "half_fma": rational.fused}
    with np.errstate(all="ignore"):
        for name, function in model.items():
            used = arrays if name == "half_fma" else arrays[:2]
            got = getattr(lanes, name)(*used, kind, ftz)
            want = [function(f, *(int(a[k]) for a in used), "rn", ftz) for k in range(32)]
            assert got.tolist() == want, name
            packed = [np.stack((a, a[::-1]), axis=1).reshape(-1).view(np.uint32) for a in used]
            halves = getattr(lanes, name)(*packed, kind, ftz).view(np.uint16)
            assert halves[0::2].tolist() == want and halves[1::2].tolist() == want[::-1]


@given(operands("f32", 2))
@settings(max_examples=25, deadline=None)
def test_minimum_and_maximum(arrays: list[np.ndarray]) -> None:
    """-0 is below +0, NaN loses or wins; every other pair is ordered."""
    f = rational.F32
    a, b = (x.view(np.float32) for x in arrays)

    def order(pattern: int) -> int:
        return -(pattern ^ 0x80000000) - 1 if pattern >> 31 else pattern

    def model(x: int, y: int, largest: bool, nan: bool) -> int:
        known = [v for v in (x, y) if v & 0x7FFFFFFF <= f.infinity]
        if not known or (nan and len(known) < 2):
            return f.nan
        return max(known, key=order) if largest else min(known, key=order)

    for name, largest, nan in (("fmin", 0, 0), ("fmax", 1, 0), ("fmin_nan", 0, 1), ("fmax_nan", 1, 1)):
        got = lanes.canonical_f32(getattr(lanes, name)(a, b)).view(np.uint32)
        want = [model(int(x), int(y), bool(largest), bool(nan)) for x, y in zip(*arrays, strict=True)]
        assert got.tolist() == want, name


def test_zeros_of_both_signs_in_every_lane() -> None:
    """The case that NumPy leaves open."""
    plus, minus = np.zeros(32, np.float32), -np.zeros(32, np.float32)
    for a, b in ((plus, minus), (minus, plus)):
        assert not np.signbit(lanes.fmax(a, b)).any() and not np.signbit(lanes.fmax_nan(a, b)).any()
        assert np.signbit(lanes.fmin(a, b)).all() and np.signbit(lanes.fmin_nan(a, b)).all()


def test_tininess_is_judged_before_rounding() -> None:
    """2^-126 * (1 - 2^-24) rounds to the smallest normal number; flushing makes it zero."""
    a, b = np.full(32, 2.0**-126, np.float32), np.full(32, 1 - 2.0**-24, np.float32)
    assert (lanes.mul_f32(a, b) == np.float32(2.0**-126)).all()
    assert (lanes.mul_f32(-a, b, "rn", True).view(np.uint32) == 0x80000000).all()
    nothing = np.zeros(32, np.float32)
    assert (lanes.fma_f32(a, b, nothing, "rp", True) == 0).all()
    # 2^-126 - 2^-186 is tiny, though float64 too rounds it up
    little = np.full(32, -(2.0**-60), np.float32)
    for rnd in MODES:
        assert (lanes.fma_f32(a, little, a, rnd, True) == 0).all()
        kept = lanes.fma_f32(a, little, a, rnd).view(np.uint32)
        assert (kept == (0x00800000 if rnd in ("rn", "rp") else 0x007FFFFF)).all()


def test_sum_error_is_exact() -> None:
    """total + error is the exact sum, for operands 200 binary orders apart."""
    x, y = np.full(32, 1.0), np.full(32, 2.0**-200)
    assert (sum_error(x, y, x + y) == 2.0**-200).all()
    assert (sum_error(y, -x, y - x) == 2.0**-200).all()


def test_saturate_and_flush() -> None:
    """NaN and negative numbers become +0; subnormals keep only their sign."""
    x = np.resize(np.array([np.nan, -0.0, -1.0, 0.25, 1.0, 7.0, np.inf, -np.inf], np.float32), 32)
    assert lanes.saturate(x).view(np.uint32)[:8].tolist() == [0, 0, 0, 0x3E800000] + [0x3F800000] * 3 + [0]
    small = np.resize(np.array([1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000], np.uint32), 32)
    flushed = lanes.flush(small.view(np.float32)).view(np.uint32)
    assert flushed[:5].tolist() == [0, 0x80000000, 0, 0x80000000, 0x00800000]


def test_float_classes() -> None:
    """testp on zero, the smallest and largest subnormal, the smallest normal, infinity and NaN."""
    x = np.resize(np.array([0, 1, 0x807FFFFF, 0x00800000, 0xFF800000, 0x7FC00001], np.uint32), 32).view(np.float32)
    want = {"normal": [0, 3], "subnormal": [1, 2], "finite": [0, 1, 2, 3], "infinite": [4]}
    want |= {"notanumber": [5], "number": [0, 1, 2, 3, 4]}
    for kind, found in want.items():
        assert np.flatnonzero(lanes.float_class(x, kind)[:6]).tolist() == found, kind
