"""Counts by line."""

from __future__ import annotations

import pytest

import emulator
from emulator.views import ViewError, hot_lines
from tests.emulator.machine import pipeline
from tests.emulator.machine.arena import HEADER
from tests.emulator.views.samples import fold, folded


def test_neighbours_of_one_count_and_place_are_one_row():
    view = hot_lines(folded())
    # The loop over 16 rows of 6 tiles in two warps: six instructions on one line of the source.
    assert view.lines[0].count == 6 * 16 * pipeline.TILES * 2
    assert view.lines[0].place.endswith("pipe.py:32") and view.lines[0].text.startswith("192 x 6: ")
    assert view.total == fold()[1].instructions
    assert sum(line.count for line in hot_lines(folded(), top=1000).lines) == view.total


def test_python_lines_sum_up():
    view = hot_lines(folded(), by="python", top=1000)
    assert view.lines[0].place == "pipe.py:32" and view.others == 0
    assert sum(line.count for line in view.lines) == view.total
    assert [line.count for line in view.lines] == sorted((line.count for line in view.lines), reverse=True)


def test_the_rest_is_counted():
    view = hot_lines(folded(), top=2)
    assert len(view.lines) == 2 and view.others > 3
    assert view.text().splitlines()[-1] == f"and {view.others} more lines"
    assert f"{view.total} warp-instructions" in view.text()


def test_a_launch_knows_lines_and_a_module_their_text():
    module = emulator.parse(HEADER + ".visible .entry k() {\n.reg .b32 %r<2>;\nmov.u32 %r1, 1;\nret;\n}")
    from emulator.memory.globals import GlobalMemory

    launch = emulator.run(module, "k", (3, 1, 1), (64, 1, 1), [], GlobalMemory())
    assert [(h.count, h.place, h.text) for h in hot_lines(launch).lines] == [(6, "PTX 6", ""), (6, "PTX 7", "")]
    assert [h.text for h in hot_lines(launch, module=module).lines] == ["mov.u32 %r1, 1;", "ret;"]
    other = emulator.parse(HEADER + ".visible .entry other() { ret; }")
    with pytest.raises(ViewError, match="module has no entry k; it has other"):
        hot_lines(launch, module=other)


def test_figure_has_a_bar_for_each_line():
    (axes,) = hot_lines(folded(), top=7).figure().axes
    assert len(axes.patches) == 7 and "a count, not time" in axes.get_xlabel()


@pytest.mark.parametrize(
    ("how", "message"),
    [({"by": "cuda"}, "by='cuda'; allowed: ptx, python"), ({"top": 0}, "top=0; allowed: at least 1")],
)
def test_wrong_settings_are_refused(how, message):
    with pytest.raises(ViewError, match=message):
        hot_lines(folded(), **how)
    with pytest.raises(ViewError, match="a int was given"):
        hot_lines(4)
