"""Views by name, and the command that draws a trace."""

from __future__ import annotations

import subprocess
import sys

import pytest

from emulator.views import ViewError, trace
from emulator.views.__main__ import main
from emulator.views.catalogue import OUTPUTS, VIEWS, choose, draw
from tests.emulator.views.samples import folded


def test_names_are_a_list_each_once():
    assert choose("tmem, timeline,tmem") == ["tmem", "timeline"]
    assert choose("errors,hot", VIEWS | OUTPUTS) == ["errors", "hot"]


@pytest.mark.parametrize("names", ["heat", "timeline,heat", "", ",", "errors"])
def test_unknown_names_are_refused_with_the_list(names):
    with pytest.raises(ViewError, match="unknown view .*; views: timeline .*; stages .*; tmem .*; hot "):
        choose(names)


def test_drawing_writes_figures_and_says_what_cannot_be_drawn(tmp_path):
    lines = list(draw(folded().recording, ["timeline", "tmem", "hot"], tmp_path / "out"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["hot.png", "timeline.png"]
    assert any(line.startswith("tmem: kernel: CTA (0, 0, 0) has no tensor memory") for line in lines)
    assert sum(line.startswith("figure: ") for line in lines) == 2


def test_the_command_draws_a_trace(tmp_path, capsys):
    path = trace(folded(), tmp_path / "t.json").path
    assert main([str(path), "--view", "stages,hot", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "Pipeline stages of kernel" in said and "Hot lines of kernel" in said
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["hot.png", "stages.png"]


def test_the_command_refuses_by_4(tmp_path, capsys):
    path = trace(folded(), tmp_path / "t.json").path
    assert main([str(path), "--view", "heat"]) == 4
    assert "unknown view 'heat'; views: timeline" in capsys.readouterr().err
    path.write_text(path.read_text()[:100])
    assert main([str(path)]) == 4
    assert "cut off" in capsys.readouterr().err


def test_views_do_not_import_matplotlib(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from tests.emulator.views.samples import folded\n"
        "from emulator import views\n"
        "view = views.timeline(folded()); print(len(view.text().splitlines()) > 5)\n"
        "try: view.figure()\n"
        "except views.ViewError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "True",
        "figures need matplotlib: pip install -e '.[notebooks]'; text() works without it",
    ]
