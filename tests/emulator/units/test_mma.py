"""The tensor core's arithmetic against words captured on an H200, and both modes against each other."""

import numpy as np
import pytest

from emulator.units.mma import Arithmetic, multiply
from tests.emulator.units.goldens import hopper, members

PAIRS = {
    "f16": ("f16", "f16"),
    "bf16": ("bf16", "bf16"),
    "tf32": ("tf32", "tf32"),
    "e4e4": ("e4m3", "e4m3"),
    "e4e5": ("e4m3", "e5m2"),
    "e5e4": ("e5m2", "e4m3"),
    "e5e5": ("e5m2", "e5m2"),
}
DENSE = [m for p in PAIRS for m in members(f"mma/{p}/D_")]


def same(got, want):
    wrong = np.argwhere(got != want)
    assert not wrong.size, (
        len(wrong),
        wrong[:3].tolist(),
        hex(int(got[tuple(wrong[0])])),
        hex(int(want[tuple(wrong[0])])),
    )


def parse(member):
    """mma/<pair>/D_<unit>_<d>_<form> -> (pair, unit, d, form)."""
    _, pair, name = member.split("/")
    _, unit, d, form = name.split("_")
    return pair, {"wg": "wgmma", "ms": "mma.sync"}[unit], d, form


@pytest.mark.parametrize("member", DENSE)
def test_dense(member):
    pair, unit, d, form = parse(member)
    a, b, want = hopper(f"mma/{pair}/A"), hopper(f"mma/{pair}/B"), hopper(member)
    c = hopper(f"mma/{pair}/{'C16' if d == 'f16' else 'C32'}")
    k = int(form.split("k")[1]) if "k" in form else a.shape[2]
    how = Arithmetic(unit, *PAIRS[pair], d, negate_a=form == "neg")
    for i in range(a.shape[0]):
        got = multiply(how, a[i, :, :k], b[i, :, :k], None if form == "sd0" else c[i], "exact")
        assert got.dtype == want.dtype
        same(got, want[i])


def test_all_dense_members_are_there():
    assert len(DENSE) == 32


@pytest.mark.parametrize("member", [m for m in members("mma/int/D_")])
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_integers(member, mode):
    a, b, c, want = hopper("mma/int/A"), hopper("mma/int/B"), hopper("mma/int/C32"), hopper(member)
    parts = member.split("/")[-1].split("_")
    unit, types = {"wg": "wgmma", "ms": "mma.sync"}[parts[1]], parts[2]
    names = (types, types) if types.startswith("b1") else (types[:2], types[2:])
    k = 16 if parts[-1] == "m16n8k16" else a.shape[2]
    how = Arithmetic(unit, *names, "s32", saturate="sat" in parts)
    for i in range(a.shape[0]):
        same(multiply(how, a[i, :, :k], b[i, :, :k], c[i], mode), want[i])


def positions_of(metadata, sel, k, name):
    """[64, k] logical column of every stored element, from the metadata words of 128 threads (PTX "Sparse matrix
    storage"): a 4-bit code holds two 2-bit positions in a group of four, for tf32 one of two elements in halves."""
    eight = name in ("e4e4", "e5e5")
    out = np.zeros((64, k), np.int64)
    for row in range(64):
        warp, inside = divmod(row, 16)
        h, g = divmod(inside, 8)
        codes = k if name == "tf32" else k // 2
        for nib in range(codes):
            if eight:
                lane, shift = 4 * g + h + 2 * (nib // 8), 4 * (nib % 8)
            else:
                lane, shift = 4 * g + 2 * sel + nib // 4, 16 * h + 4 * (nib % 4)
            code = int(metadata[32 * warp + lane]) >> shift & 15
            if name == "tf32":
                out[row, nib] = 2 * nib + (code == 0xE)
            else:
                out[row, 2 * nib] = 4 * nib + (code & 3)
                out[row, 2 * nib + 1] = 4 * nib + (code >> 2)
    return out


@pytest.mark.parametrize("member", [m for m in members("mma/sparse/") if "_D_" in m])
def test_sparse(member):
    pair, _, unit, d, form = member.split("/")[-1].split("_")
    get = lambda x: hopper(f"mma/sparse/{pair}_{x}")[0]  # noqa: E731
    a, b, c = get("A"), get("B2"), get("C16" if d == "f16" else "C32")
    where = positions_of(get("M"), int(form[-1]), a.shape[1], pair)
    how = Arithmetic({"msp": "mma.sync", "wgsp": "wgmma"}[unit], *PAIRS[pair], d)
    same(multiply(how, a, b, c, "exact", positions=where), hopper(member)[0])


@pytest.mark.parametrize(("pair", "d"), [("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")])
def test_exponent_floors(pair, d):
    a, b, c = (hopper(f"mma/floor/{pair}_{x}") for x in "ABC")
    want = hopper(f"mma/floor/{pair}_D_wg_{d}_ss")
    for i in range(a.shape[0]):
        same(multiply(Arithmetic("wgmma", *PAIRS[pair], d), a[i], b[i], c[i], "exact"), want[i])


@pytest.mark.parametrize("member", [m for m in members("mma/cpass/") if "_D_" in m])
def test_c_alone(member):
    pair, _, unit, d, _ = member.split("/")[-1].split("_")
    c, want = hopper(f"mma/cpass/C_{d}")[0], hopper(member)[0]
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(pair, 32)
    dtype = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}.get(pair, np.uint8)
    a, b = np.zeros((64, k), dtype), np.zeros((8, k), dtype)
    how = Arithmetic({"wg": "wgmma", "ms": "mma.sync"}[unit], *PAIRS[pair], d)
    same(multiply(how, a, b, c, "exact"), want)
