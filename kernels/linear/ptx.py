"""Single instructions for which CuTe DSL has no operation, or none without side effects.

A function without a `has_side_effects` is pure: the compiler may move it, merge it, or drop it. Loads of shared memory
are not pure, so that they stay between the waits and arrivals around them.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Float32, Int32, Uint32
from cutlass.cutlass_dsl import dsl_user_op

from kernels.shared.ptx import assembly

MMA_F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"


@dsl_user_op
def load_shared_128(address: Int32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Four words at a shared address that is a multiple of 16."""
    return assembly("ld.shared.v4.b32 {$0,$1,$2,$3}, [$4];", [Uint32] * 4, [Int32(address)], loc, ip, effects=True)


@dsl_user_op
def load_shared_64(address: Int32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Two words at a shared address that is a multiple of 8."""
    return assembly("ld.shared.v2.b32 {$0,$1}, [$2];", [Uint32] * 2, [Int32(address)], loc, ip, effects=True)


@dsl_user_op
def load_shared_32(address: Int32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """One word of shared memory."""
    return assembly("ld.shared.b32 $0, [$1];", [Uint32], [Int32(address)], loc, ip, effects=True)[0]


@dsl_user_op
def load_shared_f32(address: Int32, *, loc: Any = None, ip: Any = None) -> Float32:
    """One float of shared memory."""
    return assembly("ld.shared.f32 $0, [$1];", [Float32], [Int32(address)], loc, ip, effects=True)[0]


@dsl_user_op
def store_shared_f32(address: Int32, value: Float32, *, loc: Any = None, ip: Any = None) -> None:
    """One float to shared memory."""
    assembly("st.shared.f32 [$0], $1;", [], [Int32(address), Float32(value)], loc, ip, effects=True)


@dsl_user_op
def store_shared_64(address: Int32, low: Uint32, high: Uint32, *, loc: Any = None, ip: Any = None) -> None:
    """Two words to a shared address that is a multiple of 8."""
    words = [Int32(address), Uint32(low), Uint32(high)]
    assembly("st.shared.v2.b32 [$0], {$1,$2};", [], words, loc, ip, effects=True)


@dsl_user_op
def load_global_64(address: Any, wanted: Int32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Two words of global memory, 0 unless `wanted` is not 0. Not through the read-only path: another kernel may write
    them while this one starts."""
    text = "{ .reg .pred p; setp.ne.s32 p, $3, 0; mov.b32 $0, 0; mov.b32 $1, 0; @p ld.global.v2.b32 {$0,$1}, [$2]; }"
    return assembly(text, [Uint32] * 2, [cutlass.Int64(address), Int32(wanted)], loc, ip, effects=True)


@dsl_user_op
def load_global_32(address: Any, wanted: Int32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """One word of global memory, else as ``load_global_64``."""
    text = "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.b32 $0, 0; @p ld.global.b32 $0, [$1]; }"
    return assembly(text, [Uint32], [cutlass.Int64(address), Int32(wanted)], loc, ip, effects=True)[0]


@dsl_user_op
def store_global_bf16(address: Any, value: Float32, *, loc: Any = None, ip: Any = None) -> None:
    """A float to global memory as BF16, rounded to nearest even."""
    text = "{ .reg .b16 h; cvt.rn.bf16.f32 h, $1; st.global.b16 [$0], h; }"
    assembly(text, [], [cutlass.Int64(address), Float32(value)], loc, ip, effects=True)


@dsl_user_op
def bulk_copy(target: Int32, source: Any, size: Int32, barrier: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """`size` contiguous bytes of global memory to shared memory; the barrier counts them (PTX: cp.async.bulk)."""
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
    arguments = [Int32(target), cutlass.Int64(source), Int32(size), Int32(barrier)]
    assembly(text, [], arguments, loc, ip, effects=True)


@dsl_user_op
def select_bits(a: Uint32, b: Uint32, mask: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """(a & mask) | (b & ~mask) as one lop3."""
    return assembly("lop3.b32 $0, $1, $2, $3, 0xE4;", [Uint32], [Uint32(a), Uint32(b), Uint32(mask)], loc, ip)[0]


@dsl_user_op
def pack_f16(low: Float32, high: Float32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Two floats as f16, rounded to nearest even, the first in the low half."""
    return assembly("cvt.rn.f16x2.f32 $0, $1, $2;", [Uint32], [Float32(high), Float32(low)], loc, ip)[0]


@dsl_user_op
def e4m3_to_f16(bytes_: Uint32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Four E4M3 bytes as two pairs of f16, exactly."""
    text = "{ .reg .b16 l, h; mov.b32 {l,h}, $2; cvt.rn.f16x2.e4m3x2 $0, l; cvt.rn.f16x2.e4m3x2 $1, h; }"
    return assembly(text, [Uint32] * 2, [Uint32(bytes_)], loc, ip)


@dsl_user_op
def f16_to_f32(pair: Uint32, *, loc: Any = None, ip: Any = None) -> list[Float32]:
    """A pair of f16 as floats, the low half first."""
    text = "{ .reg .b16 l, h; mov.b32 {l,h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }"
    return assembly(text, [Float32] * 2, [Uint32(pair)], loc, ip)


@dsl_user_op
def mma_f16(d: list[Float32], a: list[Uint32], b: list[Uint32], *, loc: Any = None, ip: Any = None) -> list[Float32]:
    """d + a b for a 16 x 16 tile a and a 16 x 8 tile b of f16 (PTX: mma.sync.m16n8k16), sums in f32."""
    arguments = [Uint32(x) for x in (*a, *b)] + [Float32(x) for x in d]
    return assembly(MMA_F16, [Float32] * 4, arguments, loc, ip, fixed=True)


@dsl_user_op
def mma_bf16(d: list[Float32], a: list[Uint32], b: list[Uint32], *, loc: Any = None, ip: Any = None) -> list[Float32]:
    """The same for BF16."""
    arguments = [Uint32(x) for x in (*a, *b)] + [Float32(x) for x in d]
    return assembly(MMA_F16.replace(".f16.f16", ".bf16.bf16"), [Float32] * 4, arguments, loc, ip, fixed=True)


@dsl_user_op
def load_matrices(address: Int32, *, loc: Any = None, ip: Any = None) -> list[Uint32]:
    """Four matrices of 8 x 8 16-bit values, lane i giving the address of row i % 8 of matrix i / 8 (PTX: ldmatrix)."""
    text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];"
    return assembly(text, [Uint32] * 4, [Int32(address)], loc, ip, effects=True)


@dsl_user_op
def store_shared_32(address: Int32, word: Uint32, *, loc: Any = None, ip: Any = None) -> None:
    """One word to shared memory."""
    assembly("st.shared.b32 [$0], $1;", [], [Int32(address), Uint32(word)], loc, ip, effects=True)


@dsl_user_op
def rotate_left(word: Uint32, bits: int, *, loc: Any = None, ip: Any = None) -> Uint32:
    """A word rotated to the left."""
    return assembly(f"shf.l.wrap.b32 $0, $1, $1, {bits};", [Uint32], [Uint32(word)], loc, ip)[0]


@dsl_user_op
def wgmma_e4m3(
    products: list[list[tuple[list[Uint32], Any]]], columns: int, *, loc: Any = None, ip: Any = None
) -> list[list[Float32]]:
    """Sums of products of E4M3, 64 rows x `columns`, k = 32 each: A in registers, B described (PTX: wgmma.mma_async).

    products: for each accumulator its products, each (four words of A, descriptor of B). Returns columns / 2 floats for
    each accumulator, complete.
    """
    count = columns // 2
    outputs, arguments, lines = count * len(products), [], []
    for index, terms in enumerate(products):
        d = ",".join(f"${count * index + i}" for i in range(count))
        for position, (a, descriptor) in enumerate(terms):
            first = outputs + len(arguments)
            arguments += [*(Uint32(x) for x in a), cutlass.Int64(descriptor)]
            words = ",".join(f"${first + i}" for i in range(4))
            accumulate = "yes" if position else "no"
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{columns}k32.f32.e4m3.e4m3 "
                f"{{{d}}}, {{{words}}}, ${first + 4}, {accumulate}, 1, 1;"
            )
    text = " ".join(
        [
            "{ .reg .pred yes, no; setp.eq.u32 yes, 0, 0; setp.ne.u32 no, 0, 0; wgmma.fence.sync.aligned;",
            *lines,
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }",
        ]
    )
    found = assembly(text, [Float32] * outputs, arguments, loc, ip, effects=True, early=True)
    return [found[count * i : count * (i + 1)] for i in range(len(products))]


@dsl_user_op
def wgmma_bf16(
    sums: list[Float32], products: list[tuple[list[Uint32], Any]], *, loc: Any = None, ip: Any = None
) -> list[Float32]:
    """sums plus products of BF16, 64 rows x as many columns as twice the sums, k = 16 each: A in registers, B described
    (PTX: wgmma.mma_async). products: each (four words of A, descriptor of B). They are under way when this returns, and
    what was under way before is complete: only ``wgmma_bf16`` may take the sums until ``wgmma_wait`` had them.
    """
    count = len(sums)
    d = ",".join(f"${i}" for i in range(count))
    arguments, lines = [Float32(x) for x in sums], []
    for a, descriptor in products:
        first = count + len(arguments)
        arguments += [*(Uint32(x) for x in a), cutlass.Int64(descriptor)]
        words = ",".join(f"${first + i}" for i in range(4))
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.bf16.bf16 "
            f"{{{d}}}, {{{words}}}, ${first + 4}, yes, 1, 1, 0;"
        )
    text = " ".join(
        [
            "{ .reg .pred yes; setp.eq.u32 yes, 0, 0; wgmma.fence.sync.aligned;",
            *lines,
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; }",
        ]
    )
    return assembly(text, [Float32] * count, arguments, loc, ip, effects=True, early=True, tied=count)


@dsl_user_op
def wgmma_wait(sums: list[Float32], *, loc: Any = None, ip: Any = None) -> list[Float32]:
    """The sums, complete."""
    arguments, count = [Float32(x) for x in sums], len(sums)
    text = "wgmma.wait_group.sync.aligned 0;"
    return assembly(text, [Float32] * count, arguments, loc, ip, effects=True, tied=count)


@dsl_user_op
def multiply_bf16x2(a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """Products of two pairs of bf16, rounded to nearest even, subnormal ones too."""
    return assembly("mul.rn.bf16x2 $0, $1, $2;", [Uint32], [Uint32(a), Uint32(b)], loc, ip)[0]


@dsl_user_op
def multiply_f16x2(a: Uint32, b: Uint32, *, loc: Any = None, ip: Any = None) -> Uint32:
    """The same for f16."""
    return assembly("mul.rn.f16x2 $0, $1, $2;", [Uint32], [Uint32(a), Uint32(b)], loc, ip)[0]


@dsl_user_op
def both_halves(pair: Uint32, half: int, *, loc: Any = None, ip: Any = None) -> Uint32:
    """One half of a word in both of them."""
    text = f"{{ .reg .b16 l, h; mov.b32 {{l,h}}, $1; mov.b32 $0, {{{'lh'[half]},{'lh'[half]}}}; }}"
    return assembly(text, [Uint32], [Uint32(pair)], loc, ip)[0]


@dsl_user_op
def send_cluster_f32(
    address: Int32, barrier: Any, rank: Int32, value: Float32, *, loc: Any = None, ip: Any = None
) -> None:
    """One float to the place in another CTA of the cluster that has this address here; its barrier counts the four
    bytes (PTX: st.async)."""
    text = (
        "{ .reg .b32 a, b; mapa.shared::cluster.u32 a, $0, $2; mapa.shared::cluster.u32 b, $1, $2; "
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [a], $3, [b]; }"
    )
    arguments = [Int32(address), Int32(barrier.toint()), Int32(rank), Float32(value)]
    assembly(text, [], arguments, loc, ip, effects=True)


@dsl_user_op
def store_cluster_f32(address: Int32, rank: Int32, value: Float32, *, loc: Any = None, ip: Any = None) -> None:
    """One float to the place in another CTA of the cluster that has this address here."""
    text = "{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; st.shared::cluster.f32 [a], $2; }"
    assembly(text, [], [Int32(address), Int32(rank), Float32(value)], loc, ip, effects=True)


@dsl_user_op
def arrive_cluster(barrier: Any, rank: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """One arrival at a barrier of another CTA of the cluster, after what this thread wrote there."""
    text = (
        "{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; "
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a]; }"
    )
    assembly(text, [], [Int32(barrier.toint()), Int32(rank)], loc, ip, effects=True)


@dsl_user_op
def wait_cluster(barrier: Any, parity: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """Until the phase of this parity is complete; sees what other CTAs of the cluster wrote before they arrived."""
    text = (
        "{ .reg .pred p; again_${:uid}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [$0], $1; "
        "@!p bra again_${:uid}; }"
    )
    assembly(text, [], [Int32(barrier.toint()), Int32(parity)], loc, ip, effects=True)
