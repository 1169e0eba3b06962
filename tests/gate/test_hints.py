"""Hints of wrong variants from the comments of a stage."""

from __future__ import annotations

from gate.hints import find

SOURCE = '''"""Claim."""


def wrong(x, case):
    return {
        # every load reads tile 0:
        # check the slice
        "tile_0": 1,
        "scale": 2,  # the factor is left out
        "plain": 3,
    }
'''


def test_hint_is_the_comment_above_or_behind(tmp_path):
    path = tmp_path / "stage.py"
    path.write_text(SOURCE)
    assert find(path, "tile_0") == (8, "every load reads tile 0: check the slice")
    assert find(path, "scale") == (9, "the factor is left out")
    assert find(path, "plain") == (10, None)


def test_no_such_name_no_such_file_no_python(tmp_path):
    path = tmp_path / "stage.py"
    path.write_text(SOURCE)
    assert find(path, "other") is None
    assert find(tmp_path / "none.py", "scale") is None
    path.write_text("def (")
    assert find(path, "scale") is None
