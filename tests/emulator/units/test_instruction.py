"""The tcgen05 instruction descriptor: decoding and legality."""

import pytest

from emulator.errors import IllegalInstruction
from emulator.units.instruction import BITS, InstrDescriptor, block_size


def plain(m, n, a=0, b=0, d=1, **bits):
    shifts = {"neg_a": 13, "neg_b": 14, "mn_a": 15, "mn_b": 16, "sat": 3, "sparse": 2}
    extra = sum(value << shifts[name] for name, value in bits.items())
    return d << 4 | a << 7 | b << 10 | n >> 3 << 17 | m >> 4 << 24 | extra


def scaled(m, n, a=1, b=1, ue8m0=1, sfa=0, sfb=0, k96=0):
    return sfb << 4 | a << 7 | b << 10 | n >> 3 << 17 | ue8m0 << 23 | m >> 7 << 27 | sfa << 29 | k96 << 31


def test_fields():
    d = InstrDescriptor.decode(plain(128, 256, a=1, b=0, neg_b=1, mn_a=1), "f16")
    assert (d.m, d.n, d.k, d.a, d.b, d.d) == (128, 256, 16, "bf16", "f16", "f32")
    assert (d.negate_a, d.negate_b, d.mn_major_a, d.mn_major_b) == (False, True, True, False)
    d = InstrDescriptor.decode(plain(64, 8, a=2, b=2), "tf32")
    assert (d.m, d.n, d.k, d.a, d.b, d.d) == (64, 8, 8, "tf32", "tf32", "f32")
    d = InstrDescriptor.decode(plain(256, 16, a=5, b=3, d=0), "f8f6f4", 2)
    assert (d.m, d.n, d.k, d.a, d.b, d.d) == (256, 16, 32, "e2m1", "e2m3", "f16")
    d = InstrDescriptor.decode(plain(32, 64, a=1, b=0, d=2, sat=1), "i8", ws=True)
    assert (d.m, d.a, d.b, d.d, d.saturate) == (32, "s8", "u8", "s32", True)


def test_scaled_fields():
    d = InstrDescriptor.decode(scaled(128, 200, a=0, b=4, sfa=3, sfb=1), "mxf8f6f4")
    assert (d.m, d.n, d.a, d.b, d.block, d.scale, d.sfa_id, d.sfb_id) == (128, 200, "e4m3", "e3m2", 32, "ue8m0", 3, 1)
    d = InstrDescriptor.decode(scaled(256, 256, ue8m0=0), "mxf4nvf4", 2, block=16)
    assert (d.m, d.k, d.a, d.block, d.scale) == (256, 64, "e2m1", 16, "ue4m3")
    d = InstrDescriptor.decode(scaled(128, 64, sfa=2, sfb=2), "mxf4")
    assert (d.block, d.sfa_id) == (32, 2)


@pytest.mark.parametrize(
    ("word", "kind", "options", "message"),
    [
        (plain(96, 64), "f16", {}, "M = 96"),
        (plain(256, 64), "f16", {}, "M = 256"),
        (plain(128, 0), "f16", {}, "N = 0"),
        (plain(128, 264), "f16", {}, "N = 264"),
        (plain(128, 24), "f16", {"cta_group": 2}, "N = 24"),
        (plain(64, 64), "f16", {"cta_group": 2}, "M = 64"),
        (plain(128, 40, 1, 1, 2), "i8", {}, "N = 40"),
        (plain(128, 48, 1, 1, 2), "i8", {"cta_group": 2}, "N = 48"),
        (plain(64, 32), "f16", {"ws": True}, "N = 32"),
        (plain(128, 64), "f16", {"ws": True, "cta_group": 2}, "does not exist"),
        (plain(128, 64, a=2), "f16", {}, "A type 2"),
        (plain(128, 64, b=1), "tf32", {}, "A type 0"),
        (plain(128, 64, a=2, b=2, d=0), "tf32", {}, "D type 0"),
        (plain(128, 64, a=2), "f8f6f4", {}, "A type 2"),
        (plain(128, 64, a=1, d=0), "f16", {}, "f16 accumulator needs f16 operands"),
        (plain(128, 64, 1, 1, 2, neg_a=1), "i8", {}, "cannot negate"),
        (plain(128, 64, a=5, mn_a=1), "f8f6f4", {}, "MN-major A of type e2m1"),
        (plain(128, 24, mn_b=1), "f8f6f4", {}, "multiple of 16"),
        (plain(128, 48, mn_b=1), "f8f6f4", {"cta_group": 2}, "multiple of 32"),
        (plain(128, 64, sat=1), "f16", {}, "saturate"),
        (plain(128, 64, sparse=1), "f16", {}, "sparsity"),
        (plain(128, 64), "f64", {}, "allowed kinds"),
        (scaled(0, 64), "mxf4", {}, "M = 0"),
        (scaled(128, 64, ue8m0=0), "mxf4", {}, "scale type ue4m3"),
        (scaled(128, 64, ue8m0=0), "mxf4nvf4", {"block": 32}, "scale type ue4m3"),
        (scaled(128, 64), "mxf4nvf4", {}, "needs a scale vector size"),
        (scaled(128, 64), "mxf4", {"block": 16}, "blocks of 16"),
        (scaled(128, 64, k96=1), "mxf4", {}, "K = 96"),
        (scaled(128, 64, sfa=1), "mxf4", {}, "scale factor A ID 1"),
        (scaled(128, 64, sfb=2), "mxf4nvf4", {"block": 16}, "scale factor B ID 2"),
        (scaled(128, 64, a=0), "mxf4", {}, "A type 0"),
        (scaled(128, 64) | 1 << 15, "mxf4", {}, "K-major operands only"),
        (scaled(128, 64, a=0, b=0), "mxf8f6f4", {"ws": True}, "does not exist"),
    ],
)
def test_illegal(word, kind, options, message):
    with pytest.raises(IllegalInstruction, match=message):
        InstrDescriptor.decode(word, kind, **options)


def test_block_sizes():
    assert (
        block_size("mxf8f6f4", "scale_vec::1X")
        == block_size("mxf4", "scale_vec::2X")
        == block_size("mxf4", "block32")
        == 32
    )
    assert block_size("mxf4nvf4", "scale_vec::4X") == block_size("mxf4nvf4", "block16") == 16
    assert block_size("mxf4", None) == 0
    with pytest.raises(IllegalInstruction, match="blocks of 64"):
        InstrDescriptor.decode(scaled(128, 64), "mxf4", block=block_size("mxf4", "scale_vec::1X"))


def test_every_format_has_a_width():
    assert BITS["tf32"] == 32 and BITS["e2m1"] == 4 and BITS["s8"] == 8
