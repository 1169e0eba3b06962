"""Scalar forms that the captured words do not show: Blackwell forms, moves, predicates, literals, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emulator.builders.algebra import Unsupported
from emulator.memory.spaces import SHARED_WINDOW
from tests.emulator.isa.harness import Code

REGISTERS = {"p": "pred", "q": "pred", "s": "pred", "o": "b8", "v": "b8", "wide": "b128", "other": "b128"}
REGISTERS |= {n: "b32" for n in "abcdef"} | {n: "b64" for n in "xyzw"} | {n: "b16" for n in "hgk"}
RNG = np.random.default_rng(11)


def words(dtype: type = np.uint32) -> np.ndarray:
    """32 random patterns."""
    return RNG.integers(0, np.iinfo(dtype).max, 32, dtype=dtype, endpoint=True)


def floats(*values: float) -> np.ndarray:
    """The given f32 over and over, as patterns."""
    return np.resize(np.array(values, np.float32), 32).view(np.uint32)


def run(body: str, **values: np.ndarray) -> dict[str, np.ndarray]:
    """Registers after the body."""
    return Code(body, REGISTERS)(**values)


# ---------------------------------------------------------------- moves
def test_packing_and_unpacking() -> None:
    """Every element width, the sink, and a pack of unpacked parts."""
    x, h, g = words(np.uint64), words(np.uint16), words(np.uint16)
    after = run("mov.b64 {a,b},x; mov.b64 y,{b,a}; mov.b64 {_,c},x; mov.b32 d,{h,g}; mov.b32 {k,_},d;", x=x, h=h, g=g)
    low, high = x.view(np.uint32)[0::2], x.view(np.uint32)[1::2]
    assert (after["a"] == low).all() and (after["b"] == high).all() and (after["c"] == high).all()
    assert (after["y"] == (low.astype(np.uint64) << np.uint64(32) | high)).all()
    assert (after["d"] == (g.astype(np.uint32) << 16 | h)).all() and (after["k"] == h).all()
    after = run("mov.b64 {h,g,k,_},x; mov.b64 y,{g,h,h,k};", x=x)
    quarters = x.view(np.uint16).reshape(32, 4)
    assert (after["y"].view(np.uint16).reshape(32, 4) == quarters[:, [1, 0, 0, 2]]).all()
    a = words()
    after = run("mov.b32 {o,v,_,_},a; mov.b16 h,{v,o}; mov.b32 b,{o,v,v,o};", a=a)
    octets = a.view(np.uint8).reshape(32, 4)
    assert (after["h"].view(np.uint8).reshape(32, 2) == octets[:, [1, 0]]).all()
    assert (after["b"].view(np.uint8).reshape(32, 4) == octets[:, [0, 1, 1, 0]]).all()


def test_128_bits() -> None:
    """Pack, copy, unpack in halves and quarters."""
    x, y = words(np.uint64), words(np.uint64)
    after = run("mov.b128 wide,{x,y}; mov.b128 other,wide; mov.b128 {z,w},other; mov.b128 {a,b,c,_},wide;", x=x, y=y)
    assert (after["z"] == x).all() and (after["w"] == y).all() and (after["wide"] == np.stack((x, y))).all()
    assert (after["a"] == x.view(np.uint32)[0::2]).all() and (after["c"] == y.view(np.uint32)[0::2]).all()
    after = run("mov.b128 wide,{a,b,c,d}; mov.b128 {x,y},wide;", a=x.view(np.uint32)[:32], d=y.view(np.uint32)[:32])
    assert (after["x"] == x.view(np.uint32)[:32]).all()
    assert (after["y"] >> np.uint64(32) == y.view(np.uint32)[:32]).all()


def test_literals_special_registers_and_addresses() -> None:
    """Float and integer literals, predicates from literals, %laneid, the address of a variable."""
    after = run("mov.f32 a,0f40490FDB; mov.b32 b,-1; mov.u64 x,variable; mov.u32 c,variable+8; mov.u32 d,%laneid;")
    assert (after["a"] == 0x40490FDB).all() and (after["b"] == 0xFFFFFFFF).all()
    assert (after["x"] == 0x3000480).all() and (after["c"] == 0x3000488).all()
    assert (after["d"] == np.arange(32)).all()
    after = run("mov.pred p,-1; mov.pred q,2; mov.pred s,0; mov.f64 x,0d3FF0000000000000; mov.b16 h,0x8001;")
    assert after["p"].all() and after["q"].all() and not after["s"].any()
    assert (after["x"] == 0x3FF0000000000000).all() and (after["h"] == 0x8001).all()


def test_generic_addresses() -> None:
    """Shared addresses move into their window and back; the others are their own generic addresses."""
    x = np.arange(32, dtype=np.uint64) * 64 + 0x3000000
    after = run(
        "cvta.shared.u64 y,x; cvta.to.shared::cluster.u64 z,y; cvta.shared::cta.u64 w,variable;"
        "isspacep.shared p,y; isspacep.shared::cluster q,y; isspacep.shared s,x;",
        x=x,
    )
    assert (after["y"] == x + np.uint64(SHARED_WINDOW)).all() and (after["z"] == x).all()
    assert (after["w"] == SHARED_WINDOW + 0x3000480).all()
    assert after["p"].all() and after["q"].all() and not after["s"].any()
    after = run("cvta.shared.u64 y,x; isspacep.shared p,y; isspacep.shared::cluster q,y;", x=x + np.uint64(1 << 24))
    assert not after["p"].any() and after["q"].all()
    after = run("cvta.global.u64 y,x; cvta.to.local.u64 z,x; cvta.param.u64 w,x;", x=x)
    assert all((after[name] == x).all() for name in "yzw")


# ---------------------------------------------------------------- comparison
@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_setp_joined_with_a_predicate(operation: str) -> None:
    """p = op(t, c), q = op(!t, c), with the predicate as it is and negated, and with a sink in either place."""
    a, b, s = words(), words(), RNG.random(32) < 0.5
    b[::3] = a[::3]
    truth = a.view(np.int32) < b.view(np.int32)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[operation]
    after = run(f"setp.lt.{operation}.s32 p|q,a,b,s;", a=a, b=b, s=s)
    assert (after["p"] == join(truth, s)).all() and (after["q"] == join(~truth, s)).all()
    after = run(f"setp.lt.{operation}.s32 p|_,a,b,!s; setp.lt.{operation}.s32 _|q,a,b,!s;", a=a, b=b, s=s)
    assert (after["p"] == join(truth, ~s)).all() and (after["q"] == join(~truth, ~s)).all()


def test_setp_of_halves() -> None:
    """bf16 scalars and f16x2 with flushing: the smallest f16 equals zero only when flushed."""
    one, two = np.full(32, 0x3F80, np.uint16), np.full(32, 0x4000, np.uint16)
    after = run("setp.lt.bf16 p,h,g; setp.nan.bf16 q,h,h;", h=one, g=two)
    assert after["p"].all() and not after["q"].any()
    a = np.full(32, 0x3C000001, np.uint32)
    b = np.full(32, 0x3C000000, np.uint32)
    after = run("setp.eq.f16x2 p|q,a,b;", a=a, b=b)
    assert not after["p"].any() and after["q"].all()
    assert run("setp.eq.ftz.f16x2 p|q,a,b;", a=a, b=b)["p"].all()


def test_set_to_halves() -> None:
    """1.0 or 0.0 of a half type, 0xFFFF for 16-bit integers, both halves of a pair."""
    a, b = floats(1.0), floats(2.0)
    after = run("set.lt.f16.f32 h,a,b; set.lt.bf16.f32 g,a,b; set.gt.f16.f32 k,a,b; set.lt.f32.f32 c,a,b;", a=a, b=b)
    assert (after["h"] == 0x3C00).all() and (after["g"] == 0x3F80).all() and (after["k"] == 0).all()
    assert (after["c"] == 0x3F800000).all()
    h = np.full(32, 0x3C00, np.uint16)
    after = run("set.eq.u16.f16 g,h,h; set.eq.s32.f16 a,h,h; set.ne.and.u32.s32 b,c,d,p;", h=h, p=np.ones(32, np.bool_))
    assert (after["g"] == 0xFFFF).all() and (after["a"] == 0xFFFFFFFF).all() and (after["b"] == 0).all()
    pair = run("set.lt.u32.bf16x2 c,a,b;", a=np.full(32, 0x3F804000, np.uint32), b=np.full(32, 0x40003F80, np.uint32))
    assert (pair["c"] == 0xFFFF0000).all()


def test_selection_keeps_bits() -> None:
    """selp of a loaded NaN keeps the payload; of an arithmetic NaN it gives the canonical one; literals are floats."""
    p = np.arange(32) % 2 == 0
    a, b = np.full(32, 0x7FC12345, np.uint32), floats(np.inf, 1.0)
    after = run("selp.b32 c,a,b,p; sub.f32 d,b,b; selp.f32 e,d,0f00000000,p; selp.b32 f,7,a,!p;", a=a, b=b, p=p)
    assert (after["c"] == np.where(p, a, b)).all()
    assert after["e"][:4].tolist() == [0x7FFFFFFF, 0, 0x7FFFFFFF, 0]
    assert (after["f"] == np.where(p, a, 7)).all()
    d, f = floats(-0.0, np.nan), floats(-1e-45, -1)
    after = run("slct.b32.f32 c,a,b,d; slct.ftz.b32.f32 e,a,b,f;", a=a, b=b, d=d, f=f)
    assert (after["c"] == np.where(p, a, b)).all() and (after["e"] == np.where(p, a, b)).all()


# ---------------------------------------------------------------- floats
def test_nan_is_canonical_where_bits_are_seen() -> None:
    """A NaN of arithmetic is 0x7FFFFFFF when stored, packed, moved or read as an integer."""
    a, b = np.full(32, 0xFFC12345, np.uint32), floats(1.0)
    after = run("add.f32 c,a,b; mov.b32 d,c; mov.b64 x,{c,b}; and.b32 e,c,-1; neg.f32 f,c; max.f32 a,a,a;", a=a, b=b)
    for name in "acdef":
        assert (after[name] == 0x7FFFFFFF).all(), name
    assert (after["x"] == 0x3F8000007FFFFFFF).all()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
@pytest.mark.parametrize("rnd", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_f32x2_is_two_f32(name: str, rnd: str, ftz: str) -> None:
    """Both halves, in every rounding mode."""
    x, y, z = (RNG.standard_normal(64).astype(np.float32) for _ in range(3))
    x[:8], y[:8] = 1e-38, 1e-3
    third, last = (",z", ",e") if name == "fma" else ("", "")
    pair = run(f"{name}.{rnd}{ftz}.f32x2 w,x,y{third};", x=x.view(np.uint64), y=y.view(np.uint64), z=z.view(np.uint64))
    for half in (0, 1):
        a, b, e = (np.ascontiguousarray(v[half::2]).view(np.uint32) for v in (x, y, z))
        single = run(f"{name}.{rnd}{ftz}.f32 c,a,b{last};", a=a, b=b, e=e)["c"]
        assert (pair["w"].view(np.uint32)[half::2] == single).all()


def test_mixed_precision() -> None:
    """A half operand is widened exactly; the sum or product is rounded once to f32; .sat clamps."""
    h, g, c = (RNG.standard_normal(32).astype(t) for t in (np.float16, np.float16, np.float32))
    values = {"h": h.view(np.uint16), "g": g.view(np.uint16), "c": c.view(np.uint32)}
    after = run("add.rn.f32.f16 a,h,c; sub.f32.f16 b,h,c; fma.rn.f32.f16 d,h,g,c; add.sat.f32.f16 e,h,c;", **values)
    wide = h.astype(np.float32)
    assert (after["a"].view(np.float32) == wide + c).all() and (after["b"].view(np.float32) == wide - c).all()
    exact = (h.astype(float) * g + c).astype(np.float32)  # 22 and 24 bits of similar size: float64 holds the sum
    assert (after["d"].view(np.float32) == exact).all()
    assert (after["e"].view(np.float32) == np.clip(wide + c, 0, 1)).all()
    bf = np.full(32, 0x3F81, np.uint16)
    third = floats(2.0**-30)
    after = run("add.rz.f32.bf16 a,h,c; add.rp.f32.bf16 b,h,c; fma.rm.f32.bf16 d,h,h,c;", h=bf, c=third)
    assert (after["a"] == 0x3F810000).all() and (after["b"] == 0x3F810001).all()
    assert (after["d"].view(np.float32) == np.float32(1.0078125**2)).all()


def test_three_operand_extremes() -> None:
    """min and max of three, of magnitudes, with NaN."""
    values = {"a": floats(3.0, np.nan, -0.0), "b": floats(-5.0, 2.0, 0.0), "c": floats(4.0, -7.0, -0.0)}
    after = run("max.f32 d,a,b,c; min.NaN.f32 e,a,b,c; max.abs.f32 f,a,b,c;", **values)
    assert after["d"][:3].tolist() == floats(4.0, 2.0, 0.0)[:3].tolist()
    assert after["e"][:3].tolist() == [*floats(-5.0)[:1], 0x7FFFFFFF, 0x80000000]
    assert after["f"][:3].tolist() == floats(5.0, 7.0, 0.0)[:3].tolist()
    assert (run("min.ftz.abs.f32 d,a,b,c;", a=floats(-1e-45), b=floats(1.0), c=floats(1.0))["d"] == 0).all()


# ---------------------------------------------------------------- integers
def test_every_lop3_table() -> None:
    """All 256 truth tables, and the form that tests the result."""
    a, b, c = words(), words(), words()
    for table in range(256):
        want = np.zeros(32, np.uint32)
        for bit, (x, y, z) in enumerate(itertools.product((~a, a), (~b, b), (~c, c))):
            want |= x & y & z if table >> bit & 1 else np.uint32(0)
        assert (run(f"lop3.b32 d,a,b,c,{table};", a=a, b=b, c=c)["d"] == want).all(), table
    s = RNG.random(32) < 0.5
    after = run("lop3.or.b32 d|p,a,b,c,0x80,s; lop3.and.b32 _|q,a,a,a,0x80,s;", a=a & np.uint32(1), b=b, c=c, s=s)
    assert (after["p"] == ((a & 1 & b & c) != 0) | s).all() and (after["q"] == ((a & 1) != 0) & s).all()


def test_prmt_of_literal_selectors() -> None:
    """Shifts and masks of a literal selector give what the general permutation gives."""
    a, b = words(), words()
    chosen = [int(x) for x in RNG.integers(0, 1 << 16, 200)] + [0x8880 | 0x1111 * k for k in range(8)]
    for control in [*chosen, 0x3210, 0x7654]:
        c = np.full(32, control, np.uint32)
        literal = run(f"prmt.b32 d,a,b,{control};", a=a, b=b)["d"]
        assert (literal == run("prmt.b32 d,a,b,c;", a=a, b=b, c=c)["d"]).all(), hex(control)
        masked = run(f"prmt.b32 d,a,0,{control};", a=a)["d"]
        assert (masked == run("prmt.b32 d,a,b,c;", a=a, b=a * 0, c=c)["d"]).all(), hex(control)


def test_shift_amounts_beyond_the_width() -> None:
    """Literal and register amounts at, above and far above every width; literal funnel shifts."""
    x, a, h = words(np.uint64), words(), words(np.uint16)
    for n in (0, 1, 15, 16, 31, 32, 33, 63, 64, 65536, 0x80000000, 0xFFFFFFFF):
        b = np.full(32, n, np.uint32)
        for type, name, width, value in (("16", "h", 16, h), ("32", "a", 32, a), ("64", "x", 64, x)):
            target = {"16": "g", "32": "c", "64": "y"}[type]
            signed = value.view(f"i{width // 8}").astype(object)
            for op, want in (
                (f"shl.b{type}", [int(v) << n & (1 << width) - 1 if n < width else 0 for v in value]),
                (f"shr.u{type}", [int(v) >> n if n < width else 0 for v in value]),
                (f"shr.s{type}", [int(v) >> min(n, width - 1) & (1 << width) - 1 for v in signed]),
            ):
                for amount in ("b", str(n)):
                    got = run(f"{op} {target},{name},{amount};", b=b, **{name: value})[target]
                    assert got.tolist() == want, (op, amount, n)
        for side, mode in itertools.product("lr", ("clamp", "wrap")):
            literal = run(f"shf.{side}.{mode}.b32 c,a,d,{n};", a=a, d=a[::-1].copy())["c"]
            assert (literal == run(f"shf.{side}.{mode}.b32 c,a,d,b;", a=a, b=b, d=a[::-1].copy())["c"]).all()


def test_carry_chains() -> None:
    """128-bit sums, differences and a 64 x 64 bit product from 32-bit halves."""
    x, y, z, w = (words(np.uint64) for _ in range(4))
    x[:4], z[:4], y[:2] = 0xFFFFFFFFFFFFFFFF, 1, 0xFFFFFFFFFFFFFFFF
    after = run("add.cc.u64 x,x,z; addc.u64 y,y,w;", x=x, y=y, z=z, w=w)
    for k in range(32):
        exact = int(x[k]) + (int(y[k]) << 64) + int(z[k]) + (int(w[k]) << 64)
        assert int(after["x"][k]) + (int(after["y"][k]) << 64) == exact % (1 << 128)
    after = run("sub.cc.s64 x,x,z; subc.cc.s64 y,y,w; subc.u32 a,0,0;", x=x, y=y, z=z, w=w)
    for k in range(32):
        exact = int(x[k]) + (int(y[k]) << 64) - int(z[k]) - (int(w[k]) << 64)
        assert int(after["x"][k]) + (int(after["y"][k]) << 64) == exact % (1 << 128)
        assert int(after["a"][k]) == (0xFFFFFFFF if exact < 0 else 0)
    body = """mul.lo.u32 e,a,c; mul.hi.u32 f,a,c; mad.lo.cc.u32 f,a,d,f; madc.hi.u32 x32,a,d,0;
    mad.lo.cc.u32 f,b,c,f; madc.hi.cc.u32 x32,b,c,x32; addc.u32 y32,0,0;
    mad.lo.cc.u32 x32,b,d,x32; madc.hi.u32 y32,b,d,y32;"""
    low, high = x.view(np.uint32)[0::2].copy(), x.view(np.uint32)[1::2].copy()
    other = [v.copy() for v in (z.view(np.uint32)[0::2], z.view(np.uint32)[1::2])]
    code = Code(body, {n: "b32" for n in ("a", "b", "c", "d", "e", "f", "x32", "y32")})
    after = code(a=low, b=high, c=other[0], d=other[1])
    for k in range(32):
        got = sum(int(after[n][k]) << 32 * place for place, n in enumerate(("e", "f", "x32", "y32")))
        assert got == int(x[k]) * int(z[k])


def test_division_edges() -> None:
    """Zero divisors of every width, and the smallest integer over -1."""
    zero = np.zeros(32, np.uint32)
    a = np.resize(np.array([0, 5, 0x80000000, 0xFFFFFFFF], np.uint32), 32)
    for type in ("u32", "s32"):
        after = run(f"div.{type} c,a,b; rem.{type} d,a,b;", a=a, b=zero)
        assert (after["c"] == 0xFFFFFFFF).all() and (after["d"] == 0xFFFFFFFF).all()
    after = run("div.s32 c,a,b; rem.s32 d,a,b;", a=a, b=np.full(32, 0xFFFFFFFF, np.uint32))
    assert after["c"][:4].tolist() == [0, 0xFFFFFFFB, 0x80000000, 1] and (after["d"] == 0).all()
    h = np.resize(np.array([7, 0x8000, 0xFFF9], np.uint16), 32)
    after = run("div.s16 g,h,k; rem.s16 h,h,k;", h=h, k=np.full(32, 0xFFFD, np.uint16))
    assert after["g"][:3].tolist() == [0xFFFE, 10922, 2] and after["h"][:3].tolist() == [1, 0xFFFE, 0xFFFF]
    x = np.resize(np.array([-7, 7, -(1 << 63)], np.int64), 32).view(np.uint64)
    after = run("div.s64 y,x,z; rem.s64 w,x,z;", x=x, z=np.full(32, -2, np.int64).view(np.uint64))
    assert after["y"].view(np.int64)[:3].tolist() == [3, -3, 1 << 62]
    assert after["w"].view(np.int64)[:3].tolist() == [-1, 1, 0]


def test_cvt_pack() -> None:
    """Clamped integers side by side, the rest of the word from c (PTX ISA 9.7.9.22)."""
    a, b = (np.full(32, v, np.int32).view(np.uint32) for v in (300, -200))
    c = np.full(32, 0x12345678, np.uint32)
    for type, want in (("u16.s32", 0x012C0000), ("s16.s32", 0x012CFF38)):
        assert (run(f"cvt.pack.sat.{type} d,a,b;", a=a, b=b)["d"] == want).all()
    for type, want in (("u8", 0x5678FF00), ("s8", 0x56787F80), ("s4", 0x34567878), ("u2", 0x2345678C)):
        assert (run(f"cvt.pack.sat.{type}.s32.b32 d,a,b,c;", a=a, b=b, c=c)["d"] == want).all(), type


def test_integer_conversions_into_wider_registers() -> None:
    """A narrow result is extended in a wide register by its own sign; a wide source is cut."""
    a = np.resize(np.array([0x80, 0x7F, 0x1FF, 0xFFFFFF80], np.uint32), 32)
    after = run("cvt.s8.s32 h,a; cvt.u8.u32 g,a; cvt.s64.s32 x,a; cvt.sat.s8.s32 k,a; cvt.u16.u32 b,a;", a=a)
    assert after["h"][:4].tolist() == [0xFF80, 0x7F, 0xFFFF, 0xFF80]
    assert after["g"][:4].tolist() == [0x80, 0x7F, 0xFF, 0x80]
    assert after["k"][:4].tolist() == [0x7F, 0x7F, 0x7F, 0xFF80]
    assert after["b"][:4].tolist() == [0x80, 0x7F, 0x1FF, 0xFF80]
    assert after["x"].view(np.int64)[:4].tolist() == [0x80, 0x7F, 0x1FF, -128]


# ---------------------------------------------------------------- masks
def test_a_guard_or_a_divergent_block_writes_only_its_lanes() -> None:
    """Other lanes keep what they had: 32, 64 and 128 bits, predicates, the carry."""
    p = np.arange(32) < 5
    a, x, y = words(), words(np.uint64), words(np.uint64)
    body = "mov.b32 b,a; add.f32 c,a,a; mov.b64 y,x; mov.b128 wide,{x,x}; setp.ne.b32 q,a,b;"
    guarded = run("".join(f"@p {part};" for part in body.split(";") if part.strip()), a=a, x=x, y=y, p=p, b=a * 0)
    masked = Code(body, REGISTERS, masked=True)(p, a=a, x=x, y=y, b=a * 0)
    for after in (guarded, masked):
        assert (after["b"] == np.where(p, a, 0)).all() and (after["y"] == np.where(p, x, y)).all()
        assert (after["wide"] == np.where(p, x, 0)).all() and (after["c"][5:] == 0).all() and not after["q"].any()
    inverse = run("@!p mov.b32 b,a;", a=a, p=p)
    assert (inverse["b"] == np.where(p, 0, a)).all()
    after = run("add.cc.u32 b,a,0; @p add.cc.u32 b,a,1; addc.u32 c,0,0;", a=np.full(32, 0xFFFFFFFF, np.uint32), p=p)
    assert (after["c"] == p).all()


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("add.f32 a,b;", "operands"),
        ("add.f32 a,b,c,d;", "operands"),
        ("max.abs.f32 a,b,c;", "operands"),
        ("add.rn.sat.f32x2 x,y,z;", "no implemented form"),
        ("cvt.rs.f16x2.f32 a,b,c,d;", "is not implemented: "),
        ("cvt.rs.satfinite.e4m3x4.f32 a,{b,c,d,e},f;", "is not implemented: "),
        ("cvt.f32.f32 a,b;", "no implemented form"),
        ("cvt.sat.s32.s16 a,h;", "every s16 is a s32"),
        ("cvt.u16.u32 o,a;", "does not fit"),
        ("mov.b32 h,a;", "does not fit"),
        ("mov.b64 x,{a,b,c,d};", "must have 16 bits"),
        ("mov.b32 x,{h,g};", "must have 32 bits"),
        ("mov.b32 p,a;", "cannot be written"),
        ("mov.b16 {h,g},a;", "must have 16 bits"),
        ("mov.b16 {h,g},k;", "must have 8 bits"),
        ("add.f32 a,b,1;", "integer literal"),
        ("and.pred p,a,b;", "used as pred"),
        ("lop3.b32 a,b,c,d,256;", "0 to 255"),
        ("lop3.b32 a,b,c,d,e;", "literal"),
        ("addc.u32 a,b,c;", "condition code"),
        ("set.lt.u16.f32 h,a,b;", "needs a half source"),
        ("set.lt.ftz.bf16.f32 h,a,b;", "no .ftz"),
        ("setp.lt.b32 p,a,b;", "no implemented form"),
        ("setp.lo.s32 p,a,b;", "no implemented form"),
        ("isspacep.global p,x;", "is not implemented: "),
        ("cvta.shared.u32 a,b;", "is not implemented: "),
        ("shfl.idx.b32 a,b,0,31;", "is not implemented: "),
        ("mov.b128 wide,x;", "128-bit source"),
        ("mov.b128 x,wide;", "cannot hold 128"),
    ],
)
def test_refusals(body: str, reason: str) -> None:
    """Forms and operands that are not implemented, or not PTX, are refused at translation with the reason."""
    with pytest.raises(Unsupported, match=reason):
        run(body)
