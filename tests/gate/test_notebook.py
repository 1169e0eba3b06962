"""`--notebook`: one template, written once, refused where there is nothing to show."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import nbformat
import pytest

from gate.cli import main
from gate.errors import EXIT_OK, EXIT_USAGE, UsageError
from gate.load import load
from gate.notebook import path, text, write_or_open


def test_written_once_and_left_alone(root: Path, tmp_path: Path) -> None:
    (tmp_path / "stages").symlink_to(root / "stages")
    gates = dataclasses.replace(load(root), root=tmp_path)
    said = write_or_open(gates, ["fmha_qk", "fmha_softmax"])
    assert said[:2] == ["wrote notebooks/stage_fmha_qk.ipynb", "wrote notebooks/stage_fmha_softmax.ipynb"]
    path(gates, "fmha_qk").write_text("mine", encoding="utf-8")
    assert write_or_open(gates, ["fmha_qk"]) == [
        "notebooks/stage_fmha_qk.ipynb is there",
        "open: jupyter lab notebooks/stage_fmha_qk.ipynb",
    ]
    assert path(gates, "fmha_qk").read_text(encoding="utf-8") == "mine"


def test_the_template(root: Path) -> None:
    gates = load(root)
    book = nbformat.reads(text(gates, "fmha_multitile"), as_version=4)
    nbformat.validate(book)
    sources = [cell.source for cell in book.cells]
    assert sources[0].startswith("# fmha_multitile") and gates["fmha_multitile"].about in sources[0]
    assert 'Lab("fmha_multitile", "n384_wraps_stages")' in sources[1]
    # a mutant that hangs gives no outputs to look at
    assert any('mutant="kv_tile_pinned"' in s for s in sources)
    assert any(
        'mutant="first_pv_accumulates"' in c.source for c in nbformat.reads(text(gates, "fmha_softmax"), 4).cells
    )
    assert "assert status == 0" in sources[-1]
    assert text(gates, "fmha_multitile") == text(gates, "fmha_multitile")


def test_a_planned_gate_has_nothing_to_show(root: Path) -> None:
    gates = load(root)
    planned = next(name for name in gates.order if gates[name].state == "planned")
    with pytest.raises(UsageError, match=f"{planned} is planned: it has no kernel, so no notebook"):
        text(gates, planned)


def test_command_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmha_qk", "--notebook"], root) == EXIT_OK
    assert "open: jupyter lab notebooks/stage_fmha_qk.ipynb" in capsys.readouterr().out
    assert main(["--notebook"], root) == EXIT_USAGE
    assert "--notebook: name the gates" in capsys.readouterr().err
    assert main(["fmha_qk", "--notebook", "--list"], root) == EXIT_USAGE
