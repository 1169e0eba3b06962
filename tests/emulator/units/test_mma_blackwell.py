"""Published B200, H200 and H100 words (third-party data, skipped where absent), and properties of both modes."""

import numpy as np
import pytest

from emulator.units.formats import decode, encode
from emulator.units.mma import Arithmetic, multiply

CODE = {8: np.uint8, 16: np.uint16, 32: np.uint32}


@pytest.fixture(scope="module")
def words(shared):
    path = shared / "data" / "tcgen05_goldens.npz"
    if not path.exists():
        pytest.skip("no tcgen05 words beside this checkout")
    return np.load(path)


def row_by_row(how, a, b, c, **scales):
    """One dot product a row: a, b [n, K], c [n] -> [n]."""
    out = [
        multiply(how, a[i : i + 1], b[i : i + 1], None if c is None else c[i : i + 1, None], "exact", **scales)[0, 0]
        for i in range(len(a))
    ]
    return np.array(out)


@pytest.mark.parametrize("gpu", ["H100", "H200", "B200"])
@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
def test_dot_products(words, gpu, name):
    a, b, c, d = (words[f"km/{gpu}/{name}/{x}"] for x in ("a", "b", "c32", "d32"))
    if name == "tf32":
        a, b = a << np.uint32(13), b << np.uint32(13)
    eight = name in ("e4m3", "e5m2")
    unit = "mma.sync" if not eight or gpu == "B200" else "wgmma"
    assert (row_by_row(Arithmetic(unit, name, name, "f32"), a, b, c) == d).all()
    if f"km/{gpu}/{name}/d16" in words.files:
        c16, d16 = words[f"km/{gpu}/{name}/c16"], words[f"km/{gpu}/{name}/d16"]
        assert (row_by_row(Arithmetic("mma.sync", name, name, "f16"), a, b, c16) == d16).all()


def test_tcgen05_words(words):
    seen = 0
    for i, label in enumerate(words["sf/name"]):
        kind, a_name, b_name, d = (str(words[f"sf/{x}"][i]) for x in ("kind", "afmt", "bfmt", "dfmt"))
        k, factors = int(words["sf/k"][i]), int(words["sf/nscale"][i])
        a, b = words["sf/a"][i, :k], words["sf/b"][i, :k]
        shift = {"bf16": 16}.get(a_name, 0)
        width = {"f16": 16, "bf16": 16, "tf32": 32}.get(a_name, 8)
        a, b = (x >> np.uint32(shift) for x in (a, b))
        how = Arithmetic(
            "tcgen05",
            a_name,
            b_name,
            d,
            saturate=str(label).endswith("-sat"),
            block=k // factors if factors else 0,
            scale="" if not factors else "ue4m3" if str(label).startswith("nvfp4") else "ue8m0",
        )
        scales = {}
        if factors:
            scales = {f"scale_{x}": words[f"sf/s{x}"][i : i + 1, :factors] for x in "ab"}
        c = words["sf/c"][i].astype(np.uint16 if d == "f16" else np.uint32)
        got = multiply(how, a.astype(CODE[width])[None], b.astype(CODE[width])[None], c[None, None], "exact", **scales)
        assert int(got[0, 0]) == int(words["sf/d"][i]), label
        seen += 1
    assert seen == 63


def operands(name, m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
    return encode(name, draw(m, k)), encode(name, draw(n, k)), draw(m, n)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_modes_agree_within_rounding(name):
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(name, 32)
    a, b, c = operands(name, 24, 40, k)
    how = Arithmetic("tcgen05", name, name, "f32")
    exact = multiply(how, a, b, c.view(np.uint32), "exact").view(np.float32)
    fast = multiply(how, a, b, c.view(np.uint32)).view(np.float32)
    true = decode(name, a).astype(np.float64) @ decode(name, b).T + c
    largest = np.abs(decode(name, a)).astype(np.float64) @ np.abs(decode(name, b)).T + np.abs(c)
    assert (np.abs(exact - true) <= largest * 2.0**-23).all()
    assert (np.abs(fast - true) <= largest * 2.0**-22).all()


def test_negation_and_no_c():
    a, b, _ = operands("bf16", 8, 8, 16)
    plain = multiply(Arithmetic("tcgen05", "bf16", "bf16", "f32"), a, b, None, "exact").view(np.float32)
    for mode in ("exact", "fast"):
        turned = multiply(Arithmetic("tcgen05", "bf16", "bf16", "f32", negate_a=True), a, b, None, mode).view(
            np.float32
        )
        both = Arithmetic("tcgen05", "bf16", "bf16", "f32", negate_a=True, negate_b=True)
        assert np.allclose(turned, -plain, rtol=1e-6) and np.allclose(
            multiply(both, a, b, None, mode).view(np.float32), plain, rtol=1e-6
        )


def test_scaled_c():
    a, b, c = operands("f16", 8, 8, 16)
    how = Arithmetic("tcgen05", "f16", "f16", "f32", shift_c=3)
    want = decode("f16", a) @ decode("f16", b).T + c / 8
    for mode in ("exact", "fast"):
        assert np.allclose(multiply(how, a, b, c.view(np.uint32), mode).view(np.float32), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("block", "scale", "k"), [(32, "ue8m0", 32), (32, "ue8m0", 64), (16, "ue8m0", 64), (16, "ue4m3", 64)]
)
def test_block_scales(block, scale, k):
    name = "e4m3" if k == 32 else "e2m1"
    a, b, c = operands(name, 8, 16, k)
    rng = np.random.default_rng(3)
    low, high = (120, 134) if scale == "ue8m0" else (0x20, 0x60)
    sa, sb = (rng.integers(low, high, (rows, k // block), dtype=np.uint8) for rows in (8, 16))
    how = Arithmetic("tcgen05", name, name, "f32", block=block, scale=scale)
    left = decode(name, a) * np.repeat(decode(scale, sa), block, 1)
    right = decode(name, b) * np.repeat(decode(scale, sb), block, 1)
    want = left.astype(np.float64) @ right.T + c
    for mode in ("exact", "fast"):
        got = multiply(how, a, b, c.view(np.uint32), mode, sa, sb).view(np.float32)
        assert np.allclose(got, want, rtol=1e-5, atol=1e-3), mode
    sa[3, 0] = 0xFF if scale == "ue8m0" else 0x7F
    got = multiply(how, a, b, c.view(np.uint32), "exact", sa, sb)
    assert (got[3] == 0x7FFFFFFF).all() and not (got[[0, 1, 2, 4, 5, 6, 7]] == 0x7FFFFFFF).any()


def test_group_rules_where_sources_agree():
    """The window exponent of the 4-bit kinds is a scale exponent, of groups in use."""
    how = Arithmetic("tcgen05", "e2m1", "e2m1", "f32", block=16, scale="ue4m3")
    scales = np.array([[0x7E, 0x7E, 0x01, 0x38]], np.uint8)

    def probe(entries):
        a, b = np.zeros((1, 64), np.uint8), np.zeros((1, 64), np.uint8)
        for k, x, y in entries:
            a[0, k], b[0, k] = x, y
        return int(multiply(how, a, b, None, "exact", scales, scales)[0, 0])

    assert probe([(0, 2, 2), (16, 10, 2), (32, 1, 1), (33, 1, 1)]) == 0x36000000
    assert probe([(32, 1, 1)]) == 0x35800000


def test_sparse_equals_dense_over_the_chosen_columns():
    a, b, c = operands("f16", 8, 8, 16)
    wide = np.zeros((8, 32), np.uint16)
    where = np.tile(np.arange(16) * 2, (8, 1))
    wide[:, ::2] = b
    wide[:, 1::2] = 0x7E00
    how = Arithmetic("mma.sync", "f16", "f16", "f32")
    dense = multiply(how, a, b, c.view(np.uint32), "exact")
    assert (multiply(how, a, wide, c.view(np.uint32), "exact", positions=where) == dense).all()
    wide[:, 1::2] = 0x4500
    fast = multiply(how, a, wide, c.view(np.uint32), "fast", positions=where).view(np.float32)
    assert np.allclose(fast, dense.view(np.float32), rtol=1e-5, atol=1e-6)


def test_arguments():
    a, b, _ = operands("f16", 1, 1, 16)
    with pytest.raises(ValueError, match="mode='quick'"):
        multiply(Arithmetic("wgmma", "f16", "f16", "f32"), a, b, None, "quick")
    with pytest.raises(ValueError, match="unit='wmma'"):
        multiply(Arithmetic("wmma", "f16", "f16", "f32"), a, b, None)


def test_empty_shapes():
    how = Arithmetic("tcgen05", "f16", "f16", "f32")
    empty = np.empty((0, 16), np.uint16)
    for mode in ("exact", "fast"):
        assert multiply(how, empty, np.zeros((8, 16), np.uint16), None, mode).shape == (0, 8)
