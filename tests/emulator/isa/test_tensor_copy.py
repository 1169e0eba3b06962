"""Tensor copies that no captured words cover: gather4, scatter4, multicast, prefetch, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import Deadlock, IllegalInstruction, UnknownInstruction
from emulator.isa import lookup
from tests.emulator.isa.tensors import WAIT, Bench, dump

LOAD = "mbarrier::complete_tx::bytes"


def rows_of(rows: int, columns: int) -> np.ndarray:
    return np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns)


def gather(space: str, rows: str, hint: str = "") -> str:
    return f"""@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r6], 256;
@%p1 cp.async.bulk.tensor.2d.{space}.global.tile::gather4.{LOAD}{hint} [%r5], [%rd1, {{{rows}}}], [%r6];
{WAIT}"""


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize("space", ["shared::cta", "shared::cluster"])
def test_gather4(policy: str, space: str) -> None:
    """Four rows in the order of their coordinates, one of them outside: zeros. The bytes of all four count."""
    bench = Bench(x=rows_of(8, 64), out=np.zeros(64, np.uint32))
    tensor = bench.map("x", "u32", (64, 8), (16, 1)).encode()
    body = "mov.b32 %r9, 16;" + gather(space, "%r9, 5, 0, 5, 8") + dump(256)
    bench.run(body, tensor, "out", policy=policy)
    x = rows_of(8, 64)[:, 16:32]
    assert (bench.array("out", np.uint32).reshape(4, 16) == [x[5], x[0], x[5], 0 * x[0]]).all()


def test_gather4_with_a_swizzle_and_a_hint() -> None:
    bench = Bench(x=rows_of(8, 64), out=np.zeros(128, np.uint32))
    tensor = bench.map("x", "u32", (64, 8), (32, 1), swizzle=3).encode()
    body = f"""@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r6], 512; mov.b64 %rd9, 0;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.{LOAD}.L2::cache_hint
        [%r5], [%rd1, {{0, 7, 6, 5, 4}}], [%r6], %rd9; {WAIT}"""
    bench.run(body + dump(512), tensor, "out")
    found = bench.array("out", np.uint32).reshape(4, 8, 4)
    for row in range(4):
        for chunk in range(8):
            assert found[row, chunk ^ row].tolist() == rows_of(8, 64)[7 - row, 4 * chunk : 4 * chunk + 4].tolist()


def test_gather4_to_both_ctas_of_a_cluster() -> None:
    """Each destination signals its own barrier at the same offset."""
    bench = Bench(x=rows_of(8, 64), out=np.zeros(128, np.uint32))
    tensor = bench.map("x", "u32", (64, 8), (16, 1)).encode()
    body = f"""mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, 0; and.pred %p2, %p1, %p2; mov.b16 %rs1, 3;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r6], 256;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.{LOAD}.multicast::cluster
        [%r5], [%rd1, {{0, 1, 2, 3, 4}}], [%r6], %rs1; {WAIT}
    mul.wide.u32 %rd9, %r2, 256; add.s64 %rd2, %rd2, %rd9; {dump(256)}"""
    bench.run(body, tensor, "out", cluster=2)
    assert (bench.array("out", np.uint32).reshape(2, 4, 16) == rows_of(8, 64)[1:5, :16]).all()


def test_gather4_expecting_too_much_is_a_deadlock() -> None:
    bench = Bench(x=rows_of(8, 64), out=np.zeros(64, np.uint32))
    tensor = bench.map("x", "u32", (64, 8), (16, 1)).encode()
    body = gather("shared::cta", "0, 0, 1, 2, 3").replace("256;", "320;")
    with pytest.raises(Deadlock, match="64 bytes still expected"):
        bench.run(body, tensor, "out")


def test_scatter4() -> None:
    """Four rows of the tile go where their coordinates say; one beyond the tensor goes nowhere."""
    bench = Bench(x=np.zeros((8, 64), np.uint32))
    tensor = bench.map("x", "u32", (64, 8), (16, 1)).encode()
    body = """mul.lo.u32 %r10, %r1, 8; add.u32 %r11, %r5, %r10; add.u32 %r12, %r10, 1;
    st.shared.v2.u32 [%r11], {%r10, %r12}; fence.proxy.async.shared::cta; bar.warp.sync -1;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd1, {32, 6, 1, 9, 3}], [%r5];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    bench.run(body, tensor)
    x = bench.array("x", np.uint32).reshape(8, 64)
    words = np.stack([8 * np.arange(32), 8 * np.arange(32) + 1], 1).reshape(4, 16)
    want = np.zeros((8, 64), np.uint32)
    want[[6, 1, 3], 32:48] = words[[0, 1, 3]]
    assert (x == want).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (gather("shared::cta", "2, 0, 1, 2, 3"), "inner coordinate 2 of u32 is 8 bytes"),
        (
            "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd1, {0, 0, -1, 2, 3}], [%r5];"
            " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
            r"negative coordinates \(0, 0, -1, 2, 3\)",
        ),
    ],
)
def test_four_row_copies_that_fault(body: str, message: str) -> None:
    bench = Bench(x=rows_of(8, 64))
    with pytest.raises(IllegalInstruction, match=message) as fault:
        bench.run(body, bench.map("x", "u32", (64, 8), (16, 1)).encode())
    assert "PTX line" in str(fault.value)


def test_four_row_copies_need_a_box_of_one_row() -> None:
    bench = Bench(x=rows_of(8, 64))
    with pytest.raises(IllegalInstruction, match=r"gather4 needs a 2-d tensor map with a box of one row"):
        bench.run(gather("shared::cta", "0, 0, 1, 2, 3"), bench.map("x", "u32", (64, 8), (16, 2)).encode())
    with pytest.raises(UnknownInstruction, match="5 coordinates"):
        bench.run(gather("shared::cta", "0, 0, 1"), bench.map("x", "u32", (64, 8), (16, 1)).encode())


def test_prefetches_are_accepted_and_some_of_im2col_is_refused_by_name() -> None:
    for opcode in (
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4",
        "cp.async.bulk.prefetch.tensor.5d.L2.global.tile.L2::cache_hint",
        "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col",
        f"cp.async.bulk.tensor.4d.shared::cluster.global.im2col.{LOAD}",
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group",
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group",
    ):
        assert not isinstance(lookup(opcode), str)
    for opcode in (
        f"cp.async.bulk.tensor.4d.shared::cta.global.im2col::w::128.{LOAD}",
        f"cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.{LOAD}",
        "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col::w",
    ):
        assert "exist on sm_100 only" in str(lookup(opcode))
