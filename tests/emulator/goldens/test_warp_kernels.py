"""The probe kernels of warp operations, run whole: 28 operations on 48 cases, and the matrix moves on 4."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.goldens.probe import Out, archive, launches, member, run, table

SOURCES = dict(table("warp/specs"))
STORED = [c for c in launches("warp") if f"warp/out/{c}" in archive().files]
MATRICES = [c for c in STORED if "matrix" in c]
LANES = [c for c in STORED if c not in MATRICES]


@pytest.mark.parametrize("case", LANES)
def test_warp_operations(case: str) -> None:
    given = [member(f"warp/in/{x}") for x in (SOURCES[case], "b", "c", "mask")]
    want = member(f"warp/out/{case}")
    (out,) = run("warp", launches("warp")[case][0], 48, 32, [*given, Out(want.nbytes)])
    assert (out.view(np.uint32).reshape(want.shape) == want).all()


@pytest.mark.parametrize("case", MATRICES)
def test_matrix_moves(case: str) -> None:
    """The shared image held the index of every 16-bit element."""
    image = np.arange(2048, dtype=np.uint16)
    want = member(f"warp/out/{case}")
    arguments = [image, member("warp/in/addr"), member("warp/in/regs"), Out(want.nbytes)]
    (out,) = run("warp", launches("warp")[case][0], 4, 32, arguments)
    assert (out.view(want.dtype).reshape(want.shape) == want).all()


def test_the_lane_masks_were_not_stored() -> None:
    without = [c for c in launches("warp") if c not in STORED]
    assert without == [f"lanemask_{x}" for x in ("lt", "le", "eq", "ge", "gt")]
    for case in without:
        arguments = [*(member(f"warp/in/{x}") for x in "abc"), member("warp/in/mask"), Out(48 * 32 * 8)]
        (out,) = run("warp", launches("warp")[case][0], 48, 32, arguments)
        lane = np.arange(32, dtype=object)
        words = {"lt": (1 << lane) - 1, "le": (2 << lane) - 1, "eq": 1 << lane}
        words |= {"ge": 0xFFFFFFFF ^ words["lt"], "gt": 0xFFFFFFFF ^ words["le"]}
        here = member("warp/in/mask")[:, None] >> np.arange(32, dtype=np.uint32) & 1
        got = out.view(np.uint32).reshape(48, 32, 2)[..., 0]
        assert (got == np.where(here, words[case[-2:]].astype(np.uint32), 0xDEADBEEF)).all()
