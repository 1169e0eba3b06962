"""Special cases of the approximate functions (tables of PTX ISA 9.7.3), which no error bound covers."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.builders import lanes

# -infinity, -normal, -subnormal, -0, +0, +subnormal, +infinity, NaN
INPUTS = np.array([0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x7F800000, 0x7FC00001], np.uint32)
NAN, INF, MINF, ONE, MZERO = 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x3F800000, 0x80000000
TABLES = {
    "ex2": ([0, 0x3F000000, ONE, ONE, ONE, ONE, INF, NAN], [0, 0x3F000000, ONE, ONE, ONE, ONE, INF, NAN]),
    "lg2": ([NAN, NAN, NAN, MINF, MINF, 0xC3150000, INF, NAN], [NAN, NAN, MINF, MINF, MINF, MINF, INF, NAN]),
    "rcp_approx": (
        [MZERO, 0xBF800000, MINF, MINF, INF, INF, 0, NAN],
        [MZERO, 0xBF800000, MINF, MINF, INF, INF, 0, NAN],
    ),
    "rsqrt": ([NAN, NAN, NAN, MINF, INF, 0x64B504F3, 0, NAN], [NAN, NAN, MINF, MINF, INF, INF, 0, NAN]),
    "sqrt_approx": ([NAN, NAN, NAN, MZERO, 0, 0x1A3504F3, INF, NAN], [NAN, NAN, MZERO, MZERO, 0, 0, INF, NAN]),
}


def _bits(x: np.ndarray) -> list[int]:
    return lanes.canonical_f32(x).view(np.uint32).tolist()[:8]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("ftz", [False, True])
def test_special_arguments(name: str, ftz: bool) -> None:
    """Without flushing, subnormal arguments count; with it they are zeros."""
    x = np.resize(INPUTS, 32).view(np.float32)
    with np.errstate(all="ignore"):
        assert _bits(getattr(lanes, f"{name}_f32")(x, ftz)) == TABLES[name][ftz]


def test_ex2_at_the_edge_of_the_normal_numbers() -> None:
    """2^-126 stays; anything below is 0 with ftz and subnormal without."""
    x = np.resize(np.array([-126, np.nextafter(np.float32(-126), np.float32(-127)), -149, -200, 128], np.float32), 32)
    with np.errstate(all="ignore"):
        assert _bits(lanes.ex2_f32(x, True))[:5] == [0x00800000, 0, 0, 0, INF]
        assert _bits(lanes.ex2_f32(x, False))[:5] == [0x00800000, 0x007FFFD4, 1, 0, INF]


def test_sine_and_cosine() -> None:
    """Infinities are NaN; an argument of whole turns only gives 0 and 1; subnormals are zeros with their sign."""
    x = np.resize(np.array([np.inf, 3e38, -3e38, -1e-40, 0.0], np.float32), 32)
    with np.errstate(all="ignore"):
        assert _bits(lanes.sin_f32(x))[:5] == [NAN, 0, MZERO, MZERO, 0]
        assert _bits(lanes.cos_f32(x))[:5] == [NAN, ONE, ONE, ONE, ONE]


def test_division_by_huge_numbers() -> None:
    """div.approx loses divisors above 2^126; div.full does not."""
    a = np.resize(np.array([1.0, -1.0, np.inf, 3e38], np.float32), 32)
    b = np.full(32, 2.0**127, np.float32)
    with np.errstate(all="ignore"):
        assert _bits(lanes.div_approx_f32(a, b, False, False))[:4] == [0, MZERO, NAN, 0]
        assert lanes.div_approx_f32(a, b, False, True)[3] == np.float32(3e38) / np.float32(2.0**127)
        assert (lanes.div_approx_f32(a, b / 2, False, False)[:2] == [2.0**-126, -(2.0**-126)]).all()


def test_tables_of_half_functions() -> None:
    """Known entries: 2^0 and 2^1, NaN, tanh of infinity; a packed pair is two lookups."""
    one = {"f16": 0x3C00, "bf16": 0x3F80}
    for kind, pattern in one.items():
        x = np.resize(np.array([0, pattern, 0x7FFF], np.uint16), 32)
        assert lanes.half_function(x, f"ex2_{kind}")[:3].tolist() == [
            pattern,
            {"f16": 0x4000, "bf16": 0x4000}[kind],
            0x7FFF,
        ]
        infinity = np.full(32, {"f16": 0x7C00, "bf16": 0x7F80}[kind], np.uint16)
        assert (lanes.half_function(infinity, f"tanh_{kind}") == pattern).all()
        pairs = np.full(32, pattern << 16, np.uint32)
        assert (lanes.half_function(pairs, f"ex2_{kind}") == (0x4000 << 16 | pattern)).all()
