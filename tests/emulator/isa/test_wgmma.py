"""wgmma beyond the captured shapes: every N, integer and one-bit types, sparse integers, timing, and what is refused.

The arithmetic itself is held against captured words in tests/emulator/goldens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import emulator
from emulator.errors import IllegalInstruction, MemoryFault, UnknownInstruction
from emulator.isa import lookup
from tests.emulator.isa.warpgroup import Case

RNG = np.random.default_rng(11)
HEAD = "wgmma.mma_async.sync.aligned"


def halves(*shape: int) -> np.ndarray:
    """Small integers in f16."""
    return RNG.integers(-4, 5, shape).astype(np.float16)


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) @ b.astype(np.float64).T + c).astype(np.float32)


def f16_case(n: int, **more: object) -> tuple[Case, np.ndarray]:
    a, b = halves(64, 16), halves(n, 16)
    c = RNG.integers(-9, 9, (64, n)).astype(np.float32)
    case = Case(f"{HEAD}.m64n{n}k16.f32.f16.f16", a.view(np.uint16), b.view(np.uint16), c.view(np.uint32), **more)
    return case, product(a, b, c)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(n: int) -> None:
    case, want = f16_case(n)
    assert (case.run(arithmetic="fast").view(np.float32) == want).all()


@pytest.mark.parametrize("n", [8, 96, 256])
def test_f16_accumulators(n: int) -> None:
    a, b, c = halves(64, 16), halves(n, 16), halves(64, n)
    case = Case(f"{HEAD}.m64n{n}k16.f16.f16.f16", a.view(np.uint16), b.view(np.uint16), c.view(np.uint16))
    assert (case.run().view(np.float16) == product(a, b, c)).all()
    assert (replace(case, registers=True, tail=", p, 1, 1, 0").run().view(np.float16) == product(a, b, c)).all()


def test_scales_and_scale_d() -> None:
    case, want = f16_case(24)
    c = case.c.view(np.float32)
    plain = want - c
    for tail, expected in (
        (", p, -1, 1, 0, 0", c - plain),
        (", p, 1, -1, 0, 0", c - plain),
        (", p, -1, -1, 0, 0", c + plain),
        (", 0, 1, 1, 0, 0", plain),
        (", q, 1, 1, 0, 0", None),
    ):
        if expected is None:
            with pytest.raises(IllegalInstruction, match="scale-d differs between the lanes"):
                replace(case, tail=tail).run()
        else:
            assert (replace(case, tail=tail).run().view(np.float32) == expected).all()


@pytest.mark.parametrize("kind", ["s8", "u8"])
@pytest.mark.parametrize("other", ["s8", "u8"])
@pytest.mark.parametrize("n", [24, 48, 256])
def test_integers(kind: str, other: str, n: int) -> None:
    types = {"s8": np.int8, "u8": np.uint8}
    a, b = (
        RNG.integers(np.iinfo(types[t]).min, np.iinfo(types[t]).max + 1, (r, 32)).astype(types[t])
        for t, r in ((kind, 64), (other, n))
    )
    c = RNG.integers(-(1 << 31), 1 << 31, (64, n)).astype(np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64).T + c
    clamped = np.clip(exact, -(1 << 31), (1 << 31) - 1)
    for name, want in ((f"s32.{kind}.{other}", exact.astype(np.int32)), (f"satfinite.s32.{kind}.{other}", clamped)):
        case = Case(f"{HEAD}.m64n{n}k32.{name}", a.view(np.uint8), b.view(np.uint8), c.view(np.uint32), tail=", p")
        assert (case.run().view(np.int32) == want).all(), name


def test_one_bit() -> None:
    a, b = (RNG.integers(0, 256, (r, 32), dtype=np.uint8) for r in (64, 32))
    c = RNG.integers(0, 99, (64, 32)).astype(np.uint32)
    bits = [np.unpackbits(x, axis=1).astype(np.int64) for x in (a, b)]
    case = Case(f"{HEAD}.m64n32k256.s32.b1.b1.and.popc", a, b, c, tail=", p")
    assert (case.run() == bits[0] @ bits[1].T + c).all()


@pytest.mark.parametrize("registers", [False, True])
def test_sparse_integers(registers: bool) -> None:
    """m64n16k64: two of four elements of A, chosen by 4-bit codes in lanes of one row each."""
    a, b = RNG.integers(-128, 128, (64, 32)).astype(np.int8), RNG.integers(-128, 128, (16, 64)).astype(np.int8)
    codes = np.array([4, 8, 9, 12, 13, 14])[RNG.integers(0, 6, (64, 16))]
    dense = np.zeros((64, 64), np.int64)
    metadata = np.zeros(128, np.uint32)
    for row in range(64):
        for n, code in enumerate(codes[row]):
            dense[row, 4 * n + (code & 3)] = a[row, 2 * n]
            dense[row, 4 * n + (code >> 2)] = a[row, 2 * n + 1]
            lane = 32 * (row // 16) + 4 * (row % 8) + row // 8 % 2 + 2 * (n // 8)
            metadata[lane] |= np.uint32(int(code) << 4 * (n % 8))
    c = RNG.integers(-99, 99, (64, 16)).astype(np.int32)
    case = Case(
        "wgmma.mma_async.sp.sync.aligned.m64n16k64.s32.s8.s8",
        a.view(np.uint8),
        b.view(np.uint8),
        c.view(np.uint32),
        tail=", p",
        registers=registers,
        metadata=metadata,
    )
    assert (case.run().view(np.int32) == dense @ b.astype(np.int64).T + c).all()


# ---------------------------------------------------------------- when it completes
def test_shared_memory_is_read_when_the_product_completes() -> None:
    """A kernel that overwrites B before it waits is wrong; `latest` shows it, `in_order` cannot."""
    case, want = f16_case(8)
    spoil = "mov.b32 %r10, 0; add.u32 %r11, %r2, 8192; shl.b32 %r12, %r1, 1; add.u32 %r11, %r11, %r12; bar.sync 0; "
    spoil += "st.shared.b16 [%r11], 0; bar.sync 0; "
    wrong = replace(case, after="wgmma.commit_group.sync.aligned; " + spoil + "wgmma.wait_group.sync.aligned 0;")
    assert (wrong.run().view(np.float32) == want).all()
    assert (wrong.run(policy="latest").view(np.float32) == case.c.view(np.float32)).all()


def test_wait_group_leaves_the_youngest_groups_pending() -> None:
    """Two groups on the same accumulator: waiting for all but one lets the second read B as it is later."""
    case, want = f16_case(8)
    again = f"{case.opcode} {{%d0, %d1, %d2, %d3}}, %desc0, %desc1{case.tail}; wgmma.commit_group.sync.aligned; "
    spoil = "add.u32 %r11, %r2, 8192; shl.b32 %r12, %r1, 1; add.u32 %r11, %r11, %r12; bar.sync 0; "
    spoil += "st.shared.b16 [%r11], 0; bar.sync 0; "
    for allowed, rounds in ((0, 2), (1, 1), (2, 0)):
        after = f"wgmma.commit_group.sync.aligned; {again} wgmma.wait_group.sync.aligned {allowed}; {spoil}"
        late = replace(case, after=after + "wgmma.wait_group.sync.aligned 0;").run(policy="latest")
        c = case.c.view(np.float32)
        assert (late.view(np.float32) == c + rounds * (want - c)).all(), allowed


def test_registers_touched_too_early_make_the_product_complete_at_issue() -> None:
    """The assembler would serialise it: the sum is there, under every policy."""
    case, want = f16_case(8)
    early = replace(case, after="mov.b32 %r10, %d0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; "
                    "mov.b32 %d1, %r10;")  # fmt: skip
    for policy in ("in_order", "latest", "random"):
        got = early.run(policy=policy).view(np.float32)
        # %d0 and %d1 are the even and odd columns of the upper eight rows of every warp
        upper = np.arange(64) % 16 < 8
        assert (got[:, 0::2] == want[:, 0::2]).all() and (got[upper, 1::2] == want[upper, 0::2]).all()


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tail": ", p, 1, 1, 0"}, "3 operands after scale-d; this form takes 4"),
        ({"tail": ", p, 1, 2, 0, 0"}, "scale of B is 2; allowed: 1, -1"),
        ({"tail": ", p, 1, 1, 0, 2"}, "transpose of B is 2; allowed: 0, 1"),
        ({"opcode": f"{HEAD}.m64n16k16.f32.f16.f16"}, "D has 4 registers; this shape needs 8"),
        ({"opcode": f"{HEAD}.m64n12k16.f32.f16.f16"}, "no implemented form"),
        ({"opcode": f"{HEAD}.m64n40k32.s32.s8.s8"}, "no implemented form"),
        ({"opcode": f"{HEAD}.m64n8k16.f16.bf16.bf16"}, "no implemented form"),
    ],
)
def test_forms_that_do_not_exist(change: dict[str, str], reason: str) -> None:
    case, _ = f16_case(8)
    with pytest.raises(UnknownInstruction, match=reason):
        replace(case, **change).run()


def test_the_sparsity_selector() -> None:
    case, _ = f16_case(8)
    sparse = replace(case, opcode="wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", b=case.b.repeat(2, 1))
    sparse.metadata = np.full(128, 0x44444444, np.uint32)
    module = emulator.parse(sparse.text(4).replace(", %m, 0", ", %m, 2"))
    with pytest.raises(UnknownInstruction, match=r"sparsity selector 2; allowed: 0..1"):
        emulator.translate(module, "k")
    sparse.metadata[9] = 0x44444445
    with pytest.raises(IllegalInstruction, match="sparse metadata code 0x5 for row 2, group 4 is undefined"):
        sparse.run()


def test_a_warpgroup_must_be_whole() -> None:
    case, _ = f16_case(8)
    with pytest.raises(IllegalInstruction, match=r"warp \d: the CTA has no warps 0..3"):
        case.run(threads=96)
    with pytest.raises(IllegalInstruction, match=r"wgmma: lanes \[5\] do not execute it"):
        replace(case, before="setp.eq.u32 q, %r1, 5; @q exit;").run()
    with pytest.raises(IllegalInstruction, match="wgmma: B differs between the lanes"):
        replace(case, before="cvt.u64.u32 %rd9, %r1; add.s64 %desc1, %desc1, %rd9;").run()


def test_a_descriptor_outside_shared_memory() -> None:
    case, _ = f16_case(8)
    with pytest.raises(MemoryFault, match="matrix descriptor read"):
        replace(case, before="add.s64 %desc0, %desc0, 8192;").run()


def test_the_table_knows_every_shape() -> None:
    forms = [f"{HEAD}.m64n{n}k16.f32.bf16.bf16" for n in range(8, 257, 8)]
    forms += [f"{HEAD}.m64n{n}k8.f32.tf32.tf32" for n in range(8, 257, 8)]
    forms += [f"{HEAD}.m64n{n}k32.f16.e4m3.e5m2" for n in range(8, 257, 8)]
    forms += [f"{HEAD}.m64n{n}k32.s32.u8.s8.satfinite" for n in (8, 16, 24, *range(32, 257, 16))]
    assert not [f for f in forms if isinstance(lookup(f), str)]
