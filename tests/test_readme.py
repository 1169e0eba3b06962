"""The README is true: its commands are accepted, its links exist, it is short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
COMMANDS = re.findall(r"^(python [^#\n]+?)\s*(?:#.*)?$", README, re.MULTILINE)


def test_it_is_short():
    assert len(README.splitlines()) <= 120


def test_links_lead_somewhere(root: Path):
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not link.startswith("http") and not (root / link).exists()] == []


def test_folders_of_the_table_exist(root: Path):
    named = re.findall(r"^\| `([^`]+)`", README, re.MULTILINE)
    assert len(named) >= 8
    assert [name for name in named if not (root / name).exists()] == []


def test_make_targets_exist(root: Path):
    wanted = re.findall(r"`?make (\w+)", README)
    rules = re.findall(r"^(\w+):", (root / "Makefile").read_text(), re.MULTILINE)
    assert wanted and set(wanted) <= set(rules)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_accepted(root: Path, command: str):
    """Every command parses and finds what it names: `--list` turns a run of gates into a listing of the same selection,
    `--help` keeps a decode from running."""
    words = command.split()[1:]
    if words[0] == "-m":
        assert (root / words[1] / "__main__.py").exists()
        return
    other = "--help" if words[0] == "run_decode.py" else "--list"
    instead = [] if {"--check", "--list"} & set(words) else [other]
    done = subprocess.run([sys.executable, *words, *instead], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
