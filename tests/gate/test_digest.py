"""The key of a result: which sources it follows, and what changes it."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import pytest

from gate.digest import Sources, case_digest

FILES = {
    "stages/__init__.py": "",
    "stages/a.py": "import oracles.attention\nfrom kernels.fmha import fmha\nfrom stages.shared import parts\nimport torch\n",
    "stages/b.py": "from kernels import rope\n",
    "stages/broken.py": "def (",
    "stages/shared/__init__.py": "",
    "stages/shared/parts.py": "from ..shared import more\n",
    "stages/shared/more.py": "",
    "kernels/__init__.py": "",
    "kernels/rope.py": "",
    "kernels/fmha/__init__.py": "from .config import X\n",
    "kernels/fmha/config.py": "X = 1\n",
    "kernels/fmha/sm100.py": "from kernels.shared.show import show\n",
    "kernels/shared/__init__.py": "",
    "kernels/shared/show.py": "",
    "kernels/moe/sm100.py": "",
    "oracles/__init__.py": "",
    "oracles/attention.py": "",
    "oracles/moe.py": "",
    "backends/__init__.py": "",
    "emulator/isa/alu.py": "",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_sources_of_a_stage_are_what_it_imports_and_the_tools(tree):
    unrelated = {"stages/b.py", "stages/broken.py", "kernels/rope.py", "kernels/moe/sm100.py", "oracles/moe.py"}
    assert set(Sources(tree).of_stage("a", "emulated")) == set(FILES) - unrelated
    assert set(Sources(tree).of_stage("a", "cuda")) == set(FILES) - unrelated - {"emulator/isa/alu.py"}
    assert "backends/__init__.py" not in Sources(tree).of_stage("a", "oracle")
    assert {"stages/b.py", "kernels/__init__.py", "kernels/rope.py"} <= set(Sources(tree).of_stage("b", "oracle"))
    assert set(Sources(tree).of_stage("broken", "oracle")) == {"stages/broken.py"}
    assert Sources(tree).of_stage("absent", "oracle") == {}


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("kernels/fmha/sm100.py", True),
        ("kernels/shared/show.py", True),
        ("oracles/attention.py", True),
        ("stages/shared/more.py", True),
        ("emulator/isa/alu.py", True),
        ("kernels/moe/sm100.py", False),
        ("oracles/moe.py", False),
        ("stages/b.py", False),
    ],
)
def test_digest_changes_with_a_source_that_matters(tree, file, changes):
    def digest():
        return case_digest(Sources(tree), "a", "emulated", {"m": 1}, {"torch": "2"})

    before = digest()
    assert digest() == before and len(before) == 24
    (tree / file).write_text(FILES[file] + "# changed\n")
    assert (digest() != before) == changes


def test_digest_changes_with_what_is_asked_and_with_versions(tree):
    sources = Sources(tree)
    digests = {
        case_digest(sources, "a", "emulated", {"m": 1}, {"torch": "2"}),
        case_digest(sources, "a", "emulated", {"m": 2}, {"torch": "2"}),
        case_digest(sources, "a", "emulated", {"m": 1}, {"torch": "3"}),
        case_digest(sources, "a", "cuda", {"m": 1}, {"torch": "2"}),
    }
    assert len(digests) == 4
