"""--debug trace and --view: flags, and what a case leaves."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from emulator.views import load_trace
from gate.errors import UsageError
from gate.limits import Reference
from gate.options import parse
from gate.pictures import keep
from gate.stage import Stop
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import NAMES, fold


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--view", "heat"], r"unknown view 'heat'; views: timeline .*; stages .*; tmem .*; hot .*; errors "),
        (["--view", ""], "unknown view ''"),
        (["--view", "tmem", "--on", "gpu"], "--view needs the emulator"),
        (["--debug", "trace", "--on", "gpu"], "--debug trace needs the emulator"),
        (["--view", "tmem", "--oracle-only"], "--view runs kernels"),
        (["--debug", "trace", "--resume"], "--debug trace has to run them"),
    ],
)
def test_refused_flags(flags, message):
    with pytest.raises(UsageError, match=message):
        parse(flags)


def test_accepted_flags():
    options = parse(["g", "--debug", "trace", "--view", "tmem,errors"])
    assert (options.debug, options.view) == ("trace", ["tmem", "errors"])
    assert parse(["g"]).view is None


class Device:
    """A device whose listener is handed to the kernel."""

    def __init__(self) -> None:
        self.listener = None

    def set_policy(self, policy):
        assert policy == "in_order"

    def begin(self):
        pass

    @contextmanager
    def listening(self, listener):
        self.listener = listener
        yield


class Kernel:
    """The pipeline of the machine's tests as a stage's kernel."""

    def __init__(self, device, body=pipeline.RIGHT, launches=1, names=NAMES):
        self.device, self.body, self.launches = device, body, launches
        self.stage = SimpleNamespace(file="stages/x.py", names=lambda: names)

    def call(self):
        try:
            for _ in range(self.launches):
                out, _ = fold(self.device.listener, self.body)
        except Exception as error:
            raise Stop("hang", str(error)) from None
        return {"y": torch.from_numpy(out.astype("float64"))} if self.launches else {}


def kept(folder, trace=False, wanted=(), references=None, **kernel):
    device = Device()
    files = keep(Kernel(device, **kernel), device, references or {}, folder, trace=trace, wanted=list(wanted))
    return sorted(str(f.relative_to(folder)) for f in files)


def test_a_trace_alone(tmp_path):
    assert kept(tmp_path, trace=True) == ["trace.json"]
    assert load_trace(tmp_path / "trace.json").recording.labels.role(1) == "fold"


def test_views_leave_figures_and_text(tmp_path):
    assert kept(tmp_path, wanted=["timeline", "stages", "tmem"]) == [
        "views.txt",
        "views/stages.png",
        "views/timeline.png",
    ]
    text = (tmp_path / "views.txt").read_text()
    assert "p[0]" in text and "load (0)" in text and "has no tensor memory" in text


def test_a_stage_without_names_and_two_launches(tmp_path):
    files = kept(tmp_path, trace=True, wanted=["stages"], launches=2, names={})
    assert files == ["trace_0.json", "trace_1.json", "views.txt", "views_0/stages.png", "views_1/stages.png"]
    assert "no barriers were named" in (tmp_path / "views.txt").read_text()


def test_errors_are_drawn_from_outputs(tmp_path):
    want = torch.from_numpy(pipeline.expected().astype("float64"))
    want[1, 3] = 0
    references = {"y": Reference("y", want, want, {}), "z": Reference("z", want, want, {})}
    assert kept(tmp_path, wanted=["errors"], references=references) == ["errors_y.png", "views.txt"]
    assert "2 % of 64 elements wrong" in (tmp_path / "views.txt").read_text()


def test_a_hang_is_drawn_up_to_there(tmp_path):
    hung = pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl")
    assert kept(tmp_path, trace=True, wanted=["timeline"], body=hung) == [
        "trace.json",
        "views.txt",
        "views/timeline.png",
    ]
    text = (tmp_path / "views.txt").read_text()
    assert text.startswith("the launch stopped: kernel: no warp can step") and "for p.full[0]" in text


def test_an_empty_problem_says_that_nothing_was_launched(tmp_path):
    assert kept(tmp_path, trace=True, wanted=["stages"], launches=0) == ["views.txt"]
    assert (tmp_path / "views.txt").read_text() == "nothing was launched\n"


def test_wrong_names_are_a_mistake_of_the_stage(tmp_path):
    for wrong in ({"fields": {"S": (600, 1)}}, {"colours": 1}):
        with pytest.raises(Stop, match="stages/x.py: names") as stop:
            kept(tmp_path, trace=True, names=wrong)
        assert stop.value.status == "contract_error"
