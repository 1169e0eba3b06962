"""Single instructions for which CuTe DSL has no operation, or one whose rounding the compiler may change.

Floating-point operations say `.rn`, so that ptxas contracts no multiplication and addition into one and the emulator
and a GPU give the same bits. Functions without effects are pure: the compiler may move, merge or drop them. Accesses to
memory take a predicate, so that ragged ends need no branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutlass import Boolean, Float32, Float64, Int16, Int32, Int64, Uint32
from cutlass._mlir import ir as bindings
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

ir: Any = bindings
_LETTERS = {Float32: "f", Float64: "d", Int16: "h", Int32: "r", Uint32: "r", Int64: "l"}
_PREDICATE = "{{ .reg .pred p; setp.ne.s32 p, {flag}, 0; {body} }}"


def assembly(
    text: str,
    results: Sequence[Any],
    arguments: Sequence[Any],
    loc: Any,
    ip: Any,
    *,
    effects: bool = False,
    fixed: bool = False,
    early: bool = False,
    tied: int = 0,
) -> list[Any]:
    """One inline assembly statement: `results` are DSL types, `arguments` DSL values; gives DSL values.

    effects: it reads or writes memory, and stays where it is. fixed: it stays there although it touches no memory.
    early: results are written before all arguments are read. tied: the first arguments lie in the registers of the
    first results.
    """
    constraints = [f"={'&' * early}{_LETTERS[t]}" for t in results]
    constraints += [str(i) if i < tied else _LETTERS[type(a)] for i, a in enumerate(arguments)]
    types = [t.mlir_type for t in results]
    result: Any = None
    if types:
        result = types[0] if len(types) == 1 else ir.Type.parse(f"!llvm.struct<({', '.join(map(str, types))})>")
    made = llvm.inline_asm(
        result,
        [a.ir_value(loc=loc, ip=ip) for a in arguments],
        text,
        ",".join(constraints + (["~{memory}"] if effects else [])),
        has_side_effects=effects or fixed,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    if len(types) < 2:
        return [t(made) for t in results]
    return [t(llvm.extractvalue(t.mlir_type, made, [i], loc=loc, ip=ip)) for i, t in enumerate(results)]


# ---------------------------------------------------------------------- arithmetic


@dsl_user_op
def mul(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a b, rounded to nearest even."""
    return assembly("mul.rn.f32 $0, $1, $2;", [Float32], [Float32(a), Float32(b)], loc, ip)[0]


@dsl_user_op
def add(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a + b, rounded to nearest even."""
    return assembly("add.rn.f32 $0, $1, $2;", [Float32], [Float32(a), Float32(b)], loc, ip)[0]


@dsl_user_op
def fma(a: Float32, b: Float32, c: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a b + c, rounded once."""
    return assembly("fma.rn.f32 $0, $1, $2, $3;", [Float32], [Float32(a), Float32(b), Float32(c)], loc, ip)[0]


@dsl_user_op
def fma_cut(a: Float32, b: Float32, c: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a b + c, rounded once, towards zero."""
    return assembly("fma.rz.f32 $0, $1, $2, $3;", [Float32], [Float32(a), Float32(b), Float32(c)], loc, ip)[0]


@dsl_user_op
def negative(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """-a, of zeros too."""
    return assembly("neg.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def magnitude(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """|a|."""
    return assembly("abs.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def div(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a / b, rounded to nearest even, subnormal values included."""
    return assembly("div.rn.f32 $0, $1, $2;", [Float32], [Float32(a), Float32(b)], loc, ip)[0]


def quick_div(a: Float32, b: Float32) -> Float32:
    """a / b as `div` has it where neither is far from 1 (b from 2^-60 to 2^60, a up to 2^100), but that a quotient
    within 2^-20 of its last bit of the middle between two numbers may become the other one."""
    guess = rcp_approx(b)
    inverse = fma(guess, fma(negative(b), guess, Float32(1.0)), guess)
    quotient = mul(a, inverse)
    # The remainder is taken with the sign that lets -0 stay -0.
    return fma(negative(fma(quotient, b, negative(a))), inverse, quotient)


@dsl_user_op
def rcp(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """1 / a, rounded to nearest even."""
    return assembly("rcp.rn.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def rcp_approx(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """1 / a within 1 ulp."""
    return assembly("rcp.approx.ftz.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def rsqrt_approx(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """a^-0.5 within 2^-22.9 of it."""
    return assembly("rsqrt.approx.ftz.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def ex2_approx(a: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """2^a within 2^-22 of it; subnormal results are 0."""
    return assembly("ex2.approx.ftz.f32 $0, $1;", [Float32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def min_nan(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """The smaller of a and b, NaN if either is."""
    return assembly("min.NaN.f32 $0, $1, $2;", [Float32], [Float32(a), Float32(b)], loc, ip)[0]


@dsl_user_op
def max_nan(a: Float32, b: Float32, *, loc: Any = None, ip: Any = None) -> Float32:
    """The larger of a and b, NaN if either is."""
    return assembly("max.NaN.f32 $0, $1, $2;", [Float32], [Float32(a), Float32(b)], loc, ip)[0]


@dsl_user_op
def fma64(a: Float64, b: Float64, c: Float64, *, loc: Any = None, ip: Any = None) -> Float64:
    """a b + c in fp64, rounded once."""
    return assembly("fma.rn.f64 $0, $1, $2, $3;", [Float64], [Float64(a), Float64(b), Float64(c)], loc, ip)[0]


@dsl_user_op
def mul64(a: Float64, b: Float64, *, loc: Any = None, ip: Any = None) -> Float64:
    """a b in fp64."""
    return assembly("mul.rn.f64 $0, $1, $2;", [Float64], [Float64(a), Float64(b)], loc, ip)[0]


@dsl_user_op
def add64(a: Float64, b: Float64, *, loc: Any = None, ip: Any = None) -> Float64:
    """a + b in fp64."""
    return assembly("add.rn.f64 $0, $1, $2;", [Float64], [Float64(a), Float64(b)], loc, ip)[0]


@dsl_user_op
def negative64(a: Float64, *, loc: Any = None, ip: Any = None) -> Float64:
    """-a in fp64, of zeros too."""
    return assembly("neg.f64 $0, $1;", [Float64], [Float64(a)], loc, ip)[0]


@dsl_user_op
def narrow(a: Float64, *, loc: Any = None, ip: Any = None) -> Float32:
    """fp64 to fp32, nearest even."""
    return assembly("cvt.rn.f32.f64 $0, $1;", [Float32], [Float64(a)], loc, ip)[0]


@dsl_user_op
def narrow_towards_zero(a: Float64, *, loc: Any = None, ip: Any = None) -> Float32:
    """fp64 to fp32, cut."""
    return assembly("cvt.rz.f32.f64 $0, $1;", [Float32], [Float64(a)], loc, ip)[0]


@dsl_user_op
def widen(a: Float32, *, loc: Any = None, ip: Any = None) -> Float64:
    """fp32 to fp64, exactly."""
    return assembly("cvt.f64.f32 $0, $1;", [Float64], [Float32(a)], loc, ip)[0]


@dsl_user_op
def shuffle64(a: Float64, offset: int, *, loc: Any = None, ip: Any = None) -> Float64:
    """The value of the lane whose number differs by `offset` in one bit."""
    text = (
        f"{{ .reg .b32 l, h; mov.b64 {{l, h}}, $1; shfl.sync.bfly.b32 l, l, {offset}, 31, -1; "
        f"shfl.sync.bfly.b32 h, h, {offset}, 31, -1; mov.b64 $0, {{l, h}}; }}"
    )
    return assembly(text, [Float64], [Float64(a)], loc, ip, effects=True)[0]


@dsl_user_op
def from_lane64(a: Float64, lane: int, *, loc: Any = None, ip: Any = None) -> Float64:
    """The value of one lane, in all."""
    text = (
        f"{{ .reg .b32 l, h; mov.b64 {{l, h}}, $1; shfl.sync.idx.b32 l, l, {lane}, 31, -1; "
        f"shfl.sync.idx.b32 h, h, {lane}, 31, -1; mov.b64 $0, {{l, h}}; }}"
    )
    return assembly(text, [Float64], [Float64(a)], loc, ip, effects=True)[0]


# ---------------------------------------------------------------------- bits and formats


@dsl_user_op
def bits(a: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """The word of a float."""
    return assembly("mov.b32 $0, $1;", [Uint32], [Float32(a)], loc, ip)[0]


@dsl_user_op
def as_float(word: Uint32, *, loc: Any = None, ip: Any = None) -> Float32:
    """The float of a word."""
    return assembly("mov.b32 $0, $1;", [Float32], [Uint32(word)], loc, ip)[0]


@dsl_user_op
def here(word: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """A word as it is. What is made of it is made here: no compiler takes it out of a loop, so registers stay free."""
    return assembly("mov.b32 $0, $1;", [Uint32], [Uint32(word)], loc, ip, fixed=True)[0]


@dsl_user_op
def max_u32(a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """The larger of two unsigned words. Of magnitudes of floats: of NaN, infinity and numbers in this order."""
    return assembly("max.u32 $0, $1, $2;", [Uint32], [Uint32(a), Uint32(b)], loc, ip)[0]


@dsl_user_op
def min_s32(a: Int32, b: Int32, *, loc: Any = None, ip: Any = None) -> Int32:
    """The smaller of two signed words."""
    return assembly("min.s32 $0, $1, $2;", [Int32], [Int32(a), Int32(b)], loc, ip)[0]


@dsl_user_op
def magnitude_bf16x2(pair: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """|a| of both BF16 of a word."""
    return assembly("abs.bf16x2 $0, $1;", [Uint32], [Uint32(pair)], loc, ip)[0]


@dsl_user_op
def max_nan_bf16x2(a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """The larger of each of two pairs of BF16, NaN (0x7FFF) if either is."""
    return assembly("max.NaN.bf16x2 $0, $1, $2;", [Uint32], [Uint32(a), Uint32(b)], loc, ip)[0]


@dsl_user_op
def min_nan_bf16x2(a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """The smaller of each of two pairs of BF16, NaN (0x7FFF) if either is."""
    return assembly("min.NaN.bf16x2 $0, $1, $2;", [Uint32], [Uint32(a), Uint32(b)], loc, ip)[0]


@dsl_user_op
def to_bf16x2(low: Float32, high: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Two floats as BF16, nearest even, the first in the low half."""
    return assembly("cvt.rn.bf16x2.f32 $0, $1, $2;", [Uint32], [Float32(high), Float32(low)], loc, ip)[0]


def of_bf16x2(pair: Uint32) -> tuple[Float32, Float32]:
    """The two BF16 of a word as floats, that of the low half first."""
    return as_float(pair << 16), as_float(pair & 0xFFFF0000)


@dsl_user_op
def to_e4m3x4(values: Sequence[Float32], *, loc: Any = None, ip: Any = None) -> Uint32:
    """Four floats as E4M3 bytes, the first lowest: nearest even, saturating at 448, NaN to 0x7F."""
    text = (
        "{ .reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, $2, $1; cvt.rn.satfinite.e4m3x2.f32 h, $4, $3; "
        "mov.b32 $0, {l, h}; }"
    )
    return assembly(text, [Uint32], [Float32(v) for v in values], loc, ip)[0]


@dsl_user_op
def to_e4m3(value: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """A float as an E4M3 byte in a word: nearest even, saturating at 448, NaN to 0x7F."""
    text = "{ .reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, 0f00000000, $1; cvt.u32.u16 $0, h; }"
    return assembly(text, [Uint32], [Float32(value)], loc, ip)[0]


@dsl_user_op
def from_e4m3(byte: Uint32, *, loc: Any = None, ip: Any = None) -> Float32:
    """The value of the E4M3 byte in the low bits of a word."""
    text = (
        "{ .reg .b16 l, h, u, v; .reg .b32 w; mov.b32 {l, h}, $1; cvt.rn.f16x2.e4m3x2 w, l; mov.b32 {u, v}, w; "
        "cvt.f32.f16 $0, u; }"
    )
    return assembly(text, [Float32], [Uint32(byte)], loc, ip)[0]


@dsl_user_op
def to_e2m1x8(values: Sequence[Float32], *, loc: Any = None, ip: Any = None) -> Uint32:
    """Eight floats as E2M1, the first in the lowest four bits, by the conversion of sm_100a: nearest even, saturating
    at 6, NaN to +6.
    """
    convert = " ".join(f"cvt.rn.satfinite.e2m1x2.f32 b{i}, ${2 * i + 2}, ${2 * i + 1};" for i in range(4))
    text = "{ .reg .b8 b0, b1, b2, b3; " + convert + " mov.b32 $0, {b0, b1, b2, b3}; }"
    return assembly(text, [Uint32], [Float32(v) for v in values], loc, ip)[0]


# ---------------------------------------------------------------------- tensor cores


@dsl_user_op
def mma_bf16(
    d: Sequence[Float32], a: Sequence[Uint32], b: Sequence[Uint32], *, loc: Any = None, ip: Any = None
) -> list[Float32]:
    """d + a b for a 16 x 16 tile a and a 16 x 8 tile b of BF16 (PTX: mma.sync.m16n8k16), sums in fp32, cut."""
    text = (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    arguments = [*(Uint32(x) for x in (*a, *b)), *(Float32(x) for x in d)]
    return assembly(text, [Float32] * 4, arguments, loc, ip, fixed=True)


# ---------------------------------------------------------------------- global memory


@dsl_user_op
def load_128(address: Int64, wanted: Boolean, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Four words at an address that is a multiple of 16; zeros unless wanted."""
    zeros = " ".join(f"mov.b32 ${i}, 0;" for i in range(4))
    text = _PREDICATE.format(flag="$5", body=f"{zeros} @p ld.global.v4.b32 {{$0,$1,$2,$3}}, [$4];")
    return assembly(text, [Uint32] * 4, [Int64(address), Int32(wanted)], loc, ip, effects=True)


@dsl_user_op
def load_32(address: Int64, wanted: Boolean, *, loc: Any = None, ip: Any = None) -> Uint32:
    """One word; zero unless wanted."""
    text = _PREDICATE.format(flag="$2", body="mov.b32 $0, 0; @p ld.global.b32 $0, [$1];")
    return assembly(text, [Uint32], [Int64(address), Int32(wanted)], loc, ip, effects=True)[0]


@dsl_user_op
def load_shared_128(address: Int32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Four words at a shared address that is a multiple of 16."""
    return assembly("ld.shared.v4.b32 {$0,$1,$2,$3}, [$4];", [Uint32] * 4, [Int32(address)], loc, ip, effects=True)


@dsl_user_op
def store_shared_128(address: Int32, words: Sequence[Uint32], *, loc: Any = None, ip: Any = None) -> None:
    """Four words to a shared address that is a multiple of 16."""
    text = "st.shared.v4.b32 [$0], {$1,$2,$3,$4};"
    assembly(text, [], [Int32(address), *(Uint32(w) for w in words)], loc, ip, effects=True)


@dsl_user_op
def bulk_copy(target: Int32, source: Int64, size: Int32, barrier: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """`size` contiguous bytes of global memory to shared memory, all multiples of 16; the barrier counts them (PTX:
    cp.async.bulk)."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    assembly(text, [], [Int32(target), Int64(source), Int32(size), Int32(barrier)], loc, ip, effects=True)


@dsl_user_op
def store_words(address: Int64, words: Sequence[Uint32], wanted: Boolean, *, loc: Any = None, ip: Any = None) -> None:
    """One, two or four words to an address that is a multiple of their size, if wanted."""
    form = {1: "b32 [$0], $2;", 2: "v2.b32 [$0], {$2,$3};", 4: "v4.b32 [$0], {$2,$3,$4,$5};"}[len(words)]
    text = _PREDICATE.format(flag="$1", body=f"@p st.global.{form}")
    arguments = [Int64(address), Int32(wanted), *(Uint32(w) for w in words)]
    assembly(text, [], arguments, loc, ip, effects=True)


@dsl_user_op
def store_byte(address: Int64, byte: Uint32, wanted: Boolean, *, loc: Any = None, ip: Any = None) -> None:
    """The low byte of a word, if wanted."""
    text = _PREDICATE.format(flag="$1", body="@p st.global.u8 [$0], $2;")
    assembly(text, [], [Int64(address), Int32(wanted), Uint32(byte)], loc, ip, effects=True)
