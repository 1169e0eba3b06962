"""Every notebook is stripped, small, and runs top to bottom on the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from gate.load import load
from gate.notebook import WITHOUT_KERNELS

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_CELLS, MOST_LINES, SECONDS = 20, 12, 60
"""A longer cell belongs into a function with a test."""

# One process runs them all: what a stage needs is then judged once.
pytestmark = pytest.mark.xdist_group("notebooks")


def ids(path: Path) -> str:
    return path.stem


def test_every_gated_kernel_has_one() -> None:
    gates = load(ROOT)
    gated = [name for name in gates.order if gates[name].state == "gated"]
    wanted = {f"stage_{name}" for name in gated if gates[name].group not in WITHOUT_KERNELS}
    assert wanted <= {book.stem for book in BOOKS}


@pytest.mark.parametrize("book", BOOKS, ids=ids)
def test_stripped_and_small(book: Path) -> None:
    cells = nbformat.read(book, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    verify = subprocess.run([sys.executable, "-m", "nbstripout", "--verify", str(book)], capture_output=True, text=True)
    assert verify.returncode == 0, f"run: nbstripout notebooks/{book.name}\n{verify.stdout}{verify.stderr}"
    assert len(cells) <= MOST_CELLS
    assert max(len(cell.source.splitlines()) for cell in code) <= MOST_LINES
    assert "assert " in code[-1].source, "the last cell says what must be true"


@pytest.mark.parametrize("book", [b for b in BOOKS if b.stem.startswith("stage_")], ids=ids)
def test_is_what_the_template_writes(book: Path) -> None:
    from gate.notebook import text

    assert book.read_text(encoding="utf-8") == text(load(ROOT), book.stem.removeprefix("stage_"))


@pytest.mark.parametrize("book", BOOKS, ids=ids)
def test_runs_top_to_bottom(book: Path) -> None:
    notebook = nbformat.read(book, as_version=4)
    client = NotebookClient(notebook, timeout=SECONDS * 5, resources={"metadata": {"path": str(book.parent)}})
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
