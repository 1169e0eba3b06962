"""What all views have in common."""

from __future__ import annotations

import base64

from emulator.views import timeline
from emulator.views.view import heading, new_figure, short, table
from tests.emulator.views.samples import folded


def test_jupyter_gets_a_picture_and_the_text():
    view = timeline(folded())
    bundle = view._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/plain"] == view.text() == str(view)


def test_saving_chooses_the_format_by_the_suffix(tmp_path):
    path = timeline(folded()).save(tmp_path / "t.svg")
    assert path.read_text().startswith("<?xml")


def test_tables_align_names_left_and_numbers_right():
    assert table(["name", "n", "what"], [["a", "1", "x"], ["bbbbb", "100", "yy"]]) == [
        "name     n  what",
        "a        1  x",
        "bbbbb  100  yy",
    ]


def test_long_remarks_are_broken_and_make_room():
    figure = new_figure(8, 2)
    heading(figure, "title", ["short", "word " * 60])
    assert len(figure.texts) > 3 and figure.get_size_inches()[1] > 2.5
    assert all(len(t.get_text()) <= 100 for t in figure.texts)


def test_mangled_names_are_cut_in_titles():
    assert short("k" * 48) == "k" * 48 and short("k" * 49) == "k" * 47 + "…"
