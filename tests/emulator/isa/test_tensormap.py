"""tensormap.replace on every field, in shared and global memory, and tensormap.cp_fenceproxy."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import IllegalInstruction, UnknownInstruction
from emulator.memory.tensormap import TensorMap
from tests.emulator.isa.tensors import WAIT, Bench, dump

FIELDS = [
    ("global_address", "b64", None, "%rd2"),
    ("rank", "b32", None, "1"),
    ("box_dim", "b32", 0, "32"),
    ("box_dim", "b32", 1, "%r9"),
    ("global_dim", "b32", 0, "%r9"),
    ("global_dim", "b32", 2, "77"),
    ("global_stride", "b64", 0, "%rd9"),
    ("global_stride", "b64", 1, "4096"),
    ("element_stride", "b32", 1, "%r9"),
    ("elemtype", "b32", None, "10"),
    ("interleave_layout", "b32", None, "2"),
    ("swizzle_mode", "b32", None, "3"),
    ("swizzle_atomicity", "b32", None, "1"),
    ("fill_mode", "b32", None, "1"),
]
HOST = {"%rd2": 0, "%r9": 7, "%rd9": 1 << 36 | 160}


def three_dimensional(bench: Bench) -> TensorMap:
    return bench.map("x", "f16", (64, 8, 4), (16, 2, 1))


@pytest.mark.parametrize(("field", "kind", "ordinal", "value"), FIELDS, ids=[f"{f}{o or ''}" for f, _, o, _ in FIELDS])
@pytest.mark.parametrize("space", [".global", ".shared::cta", ""])
def test_every_field(field: str, kind: str, ordinal: int | None, value: str, space: str) -> None:
    """The other bits stay. Without a space the address is generic."""
    bench = Bench(x=np.zeros(4096, np.uint8), y=np.zeros(16, np.uint8))
    before = three_dimensional(bench)
    bench.add("map", np.frombuffer(before.encode(), np.uint8))
    place = {".global": "[%rd1]", ".shared::cta": "[%r5]", "": "[%rd8]"}[space]
    order = "" if ordinal is None else f"{ordinal}, "
    body = f"""mov.b32 %r9, 7; mov.b64 %rd9, {HOST["%rd9"]}; cvt.u64.u32 %rd8, %r5; cvta.shared.u64 %rd8, %rd8;
    mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10; ld.global.u32 %r10, [%rd10];
    shl.b32 %r11, %r1, 2; add.u32 %r11, %r5, %r11; st.shared.u32 [%r11], %r10; bar.warp.sync -1;
    @%p1 tensormap.replace.tile.{field}{space}.b1024.{kind} {place}, {order}{value}; bar.warp.sync -1;"""
    body += "" if space == ".global" else "ld.shared.u32 %r10, [%r11]; st.global.u32 [%rd10], %r10;"
    bench.run(body, "map", "y")
    given = {**HOST, "%rd2": bench.regions["y"].address}.get(value) or int(value)
    want = before.replace(field, ordinal or 0, given) if field != "rank" else None
    found = TensorMap.decode(bench.array("map", np.uint8).tobytes())
    if want is None:
        assert found.rank == 2 and found.dims == before.dims[:2]
    else:
        assert found == want and found != before


def test_a_map_changed_in_shared_memory_is_used_after_its_publication() -> None:
    """The steps of a grouped matrix product: copy the map, change it, publish it, load through it."""
    x = np.arange(512, dtype=np.uint32)
    bench = Bench(x=x, y=x[::-1].copy(), out=np.zeros(64, np.uint32), maps=np.zeros(256, np.uint8))
    tensor = bench.map("x", "u32", (32, 16), (16, 4)).encode()
    body = f"""mov.u32 %r7, spare; mul.wide.u32 %rd10, %r1, 4; add.s64 %rd10, %rd1, %rd10; ld.u32 %r10, [%rd10];
    shl.b32 %r11, %r1, 2; add.u32 %r11, %r7, %r11; st.shared.u32 [%r11], %r10; bar.warp.sync -1;
    @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r7], %rd4;
    @%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 0, 64;
    @%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 1, 3;
    @%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r7], 0, 256; bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd3], [%r7], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r6], 256;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r5], [%rd3, {{16, 1}}], [%r6];
    {WAIT}{dump(256)}"""
    bench.run(body, tensor, "out", "maps", "y")
    y = bench.array("y", np.uint32)[:192].reshape(3, 64)
    want = np.zeros((4, 16), np.uint32)
    want[:2] = y[1:3, 16:32]
    assert (bench.array("out", np.uint32).reshape(4, 16) == want).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, 257;", "box_dim: value 257; allowed 1..256"),
        ("tensormap.replace.tile.global_stride.global.b1024.b64 [%rd1], 0, 8;", "8 bytes; a multiple of 16 below"),
        ("tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 4;", "swizzle_mode: value 4; allowed 0..3"),
        ("tensormap.replace.tile.rank.global.b1024.b32 [%rd1+32], 1;", "must be a multiple of 64"),
        ("tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 5, 1;", "ordinal 5; allowed 0..4"),
    ],
)
def test_values_that_fault(text: str, message: str) -> None:
    bench = Bench(x=np.zeros(4096, np.uint8), map=np.zeros(256, np.uint8))
    with pytest.raises(IllegalInstruction, match=message):
        bench.run(text, "map")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], %r9, 1;", "the ordinal of global_dim must be"),
        ("tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1;", "2 operands; this form takes 3"),
        ("tensormap.replace.tile.global_dim.global.b1024.b64 [%rd1], 0, 1;", "no implemented form"),
        (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r5], 64;",
            "the only size is 128",
        ),
    ],
)
def test_forms_that_do_not_exist(text: str, reason: str) -> None:
    bench = Bench(map=np.zeros(256, np.uint8))
    with pytest.raises(UnknownInstruction, match=reason):
        bench.run(text, "map")
