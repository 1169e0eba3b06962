"""The probe kernels of mma.sp and wgmma.mma_async.sp, bit for bit.

Plain and ordered metadata gave the same words, A from registers the same as from shared memory, and wgmma.sp of 16- and
32-bit types the same as mma.sp; the archive holds them once.
"""

from __future__ import annotations

import numpy as np
import pytest

from emulator.units import fragments
from emulator.units.mma import Arithmetic, multiply
from tests.emulator.goldens.probe import POLICIES, Out, archive, launches, member, run, u32

CASES = [(group, c) for group in ("mma", "mma2") for c in launches(group) if c.startswith(("msp", "wgsp"))]
NAMES = {"e4": "e4m3", "e5": "e5m2"}
UNSTORED = ["wgsp_e4e4_f16_ss0", "wgsp_e4e4_f16_rs0", "wgsp_e5e5_f16_ss0", "wgsp_e5e5_f16_rs0"]
"""mma.sp has no such form, and the archive no words: held against the arithmetic on the masked dense matrix."""


def operands(fmt: str, dt: str) -> list[np.ndarray]:
    """A, B, C, metadata; where no C was stored, that of the dense form."""
    c = f"mma/sparse/{fmt}_C{dt[1:]}"
    given = member(c) if c in archive().files else member(f"mma/{fmt}/C{dt[1:]}")[:1]
    return [member(f"mma/sparse/{fmt}_A"), member(f"mma/sparse/{fmt}_B2"), given, member(f"mma/sparse/{fmt}_M")]


def stored(unit: str, fmt: str, dt: str, kind: str) -> np.ndarray:
    names = [f"mma/sparse/{fmt}_D_wgsp_{dt}_ss{kind[-1]}"] if unit == "wgsp" else []
    names.append(f"mma/sparse/{fmt}_D_msp_{dt}_p{kind[-1]}")
    return next(member(n) for n in names if n in archive().files)


def dense_words(fmt: str, dt: str) -> np.ndarray:
    """D of 8-bit wgmma.sp: A spread out with zeros, B zero where A is not stored, times the dense rule of K = 64 with
    its zeros left out, row by row."""
    a, b, c, metadata = (x[0] for x in operands(fmt, dt))
    how = Arithmetic("wgmma", NAMES[fmt[:2]], NAMES[fmt[2:]], dt)
    out = []
    for warp in range(4):
        where = fragments.positions(metadata[32 * warp : 32 * warp + 32], 0, 8, 32, False)
        for row in range(16):
            line = a[16 * warp + row][None]
            met = np.ascontiguousarray(b[:, where[row]])
            out.append(multiply(how, line, met, c[16 * warp + row][None], "exact")[0])
    return np.array(out)[None]


@pytest.mark.parametrize(("group", "case"), CASES, ids=[c for _, c in CASES])
def test_sparse_products(group: str, case: str) -> None:
    unit, fmt, dt, kind = case.split("_")
    a, b, c, metadata = operands(fmt, dt)
    arguments = [a, b, c, Out(c.nbytes), u32(1), metadata]
    policy = POLICIES[CASES.index((group, case)) % 3]
    (out,) = run(group, launches(group)[case][0], 1, 128, arguments, policy=policy)
    want = dense_words(fmt, dt) if case in UNSTORED else stored(unit, fmt, dt, kind)
    assert (out.view(c.dtype).reshape(c.shape) == want).all()


def test_every_other_sparse_form_has_words() -> None:
    assert len(CASES) == 44
    for _, case in CASES:
        if case not in UNSTORED:
            assert stored(*case.split("_")) is not None
