"""The picture of modes and slices."""

from __future__ import annotations

import pytest

from emulator.views.view import COLOURS
from gate.figures import Modes

MODES = {"box": 1, "KV tile": 3, "d tile": 1, "head": 40}


def test_kept_and_pinned() -> None:
    modes = Modes(MODES, {"wrong": (None, 0, None, 7), "right": (None, None, 0, "head")})
    assert modes.lost("wrong") == ["KV tile", "head"] and modes.lost("right") == []
    assert modes.text().splitlines() == [
        "modes: box (1), KV tile (3), d tile (1), head (40)",
        "wrong: keeps box, d tile; PINS KV tile, head",
        "right: keeps box, KV tile, head",
    ]


def test_boxes_of_the_figure() -> None:
    pytest.importorskip("matplotlib")
    figure = Modes(MODES, {"wrong": (None, 1, None, "head")}).figure()
    colours = [patch.get_facecolor() for patch in figure.axes[0].patches]
    from matplotlib.colors import to_rgba

    named = {to_rgba(COLOURS[name]): name for name in ("blue", "sky", "red", "light")}
    # 40 heads are drawn as 12 and an ellipsis
    assert [named[c] for c in colours] == ["blue", "light", "red", "light", "blue", *["sky"] * 12]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="slice 't' has 1 entries; the tensor has 4 modes"):
        Modes(MODES, {"t": (None,)})
    with pytest.raises(ValueError, match="index 3 of mode 'KV tile'; allowed: 0 to 2"):
        Modes(MODES, {"t": (None, 3, None, None)})
