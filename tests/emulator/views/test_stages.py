"""Occupancy of pipeline stages."""

from __future__ import annotations

import pytest

from emulator.views import Recorder, ViewError, stages
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import NAMES, fold, folded


@pytest.mark.parametrize("clock", ["logical", "step"])
@pytest.mark.parametrize("policy", ["in_order", "latest"])
def test_every_tile_fills_its_stage_is_read_and_released(clock, policy):
    view = stages(folded(policy=policy), clock=clock)
    assert [s.name for s in view.stages] == ["p[0]", "p[1]"] and view.named
    for stage in view.stages:
        items = [s.item for s in stage.states if s.state == "being read"]
        assert items == list(range(stage.number, pipeline.TILES, 2))
        assert stage.items == 3 and stage.states[-1].state == "free"
        assert stage.states[0].begin == 0 and stage.states[-1].end == view.cta.last(clock)
        assert all(a.end == b.begin for a, b in zip(stage.states, stage.states[1:], strict=False))
        assert sum(stage.share(state) for state in ("free", "filling", "full", "being read")) == pytest.approx(1)
    # Copies that complete at once are ahead of the warps that fold: while one stage is read, the other one is full.
    assert policy == "latest" or view.stages[1].share("full") > 0.2
    assert view.remarks() == []


def test_text_and_figure():
    view = stages(folded())
    assert view.text().splitlines()[2].split() == [
        "stage",
        "items",
        "free",
        "filling",
        "full",
        "being",
        "read",
        *"at the end".split(),
    ]
    figure = view.figure()
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["p[0]", "p[1]"]
    assert {t.get_text() for t in axes.texts} <= {str(n) for n in range(6)} and axes.texts
    assert "(no time)" in axes.get_xlabel()


def test_a_stage_that_nobody_releases_is_told():
    never = pipeline.RIGHT.replace("@%p2 mbarrier.arrive.shared.b64 _, [%r14];\n", "")
    view = stages(folded(never))
    assert view.remarks() == ["never released before the launch stopped: p[0], p[1]"]
    assert [s.states[-1].state for s in view.stages] == ["being read"] * 2


def test_bytes_that_never_come_are_told():
    view = stages(folded(pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl")))
    assert view.remarks() == ["never filled before the launch stopped: p[0], p[1]"]


def test_without_names_every_barrier_is_shown():
    recorder = Recorder(roles=NAMES["roles"])
    fold(recorder)
    view = stages(recorder)
    assert not view.named and len(view.stages) == 4 and view.stages[0].name.startswith("mbarrier 0x")
    assert "no barriers were named" in view.text()


def test_a_kernel_without_barriers_has_no_stages():
    recorder = Recorder()
    from tests.emulator.machine.arena import Arena

    Arena().run("mov.u32 %r1, 1; ret;", listeners=[recorder])
    view = stages(recorder)
    assert view.stages == () and view.figure().axes


def test_wrong_clock_is_refused():
    with pytest.raises(ViewError, match="allowed: logical, step"):
        stages(folded(), clock="ns")


def test_attention_pipelines_by_name(attend):
    view = stages(attend(None, 384)[0])
    assert [s.name for s in view.stages] == [
        "q[0]", "k[0]", "k[1]", "s[0]", "s[1]", "v[0]", "v[1]", "o[0]", "row[0]", "row[1]",
    ]  # fmt: skip
    assert [s.items for s in view.stages] == [1, 2, 1, 2, 1, 2, 1, 3, 2, 1]
    hung = stages(attend("stage_never_released", 384)[0])
    assert hung.remarks()[0] == "never released before the launch stopped: q[0], k[0], k[1], v[0]"
