"""Building the stand-in library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import cutlass
import pytest

from backends.runtime import build as module
from backends.runtime.build import NAME, CompilerMissing, build


def exports(library: Path) -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def test_it_is_built_once(library_root, monkeypatch):
    first = build(library_root / "runtime")
    assert first.name == NAME and first.stat().st_size > 10_000
    stamp = first.stat().st_mtime_ns
    monkeypatch.setattr(module.subprocess, "run", lambda *a, **k: pytest.fail("compiled again"))
    assert build(library_root / "runtime") == first
    assert first.stat().st_mtime_ns == stamp
    assert [p.name for p in first.parent.iterdir()] == [NAME]


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm")
def test_it_exports_everything_that_the_real_library_does(library_root):
    packages = Path(cutlass.__file__).parents[2]
    real = next(packages.glob(f"cu*/lib/{NAME}"))
    wanted = {name for name in exports(real) if name.startswith(("_cu", "cuda_dialect", "CuteDSLRT"))}
    assert len(wanted) >= 80
    assert {f"emulated_{name}" for name in wanted} - exports(build(library_root / "runtime")) == set()


@pytest.mark.skipif(not shutil.which("nm"), reason="needs nm")
def test_it_exports_no_name_of_the_real_library(library_root):
    """Such a name would catch calls that are meant for the GPU, or the other way round: the first library wins."""
    own = exports(build(library_root / "runtime"))
    assert not {name for name in own if name.startswith(("_cu", "cuda_dialect", "CuteDSLRT"))}


def test_a_missing_compiler_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        CompilerMissing, match=r"needs a C\+\+ compiler \(looked for c\+\+, g\+\+, clang\+\+\): install"
    ):
        build(tmp_path / "runtime")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerMissing, match="looked for CXX=no-such-compiler") as caught:
        build(tmp_path / "runtime")
    assert "\n" not in str(caught.value)


def test_a_refusing_compiler_is_quoted_and_leaves_nothing(tmp_path, monkeypatch):
    script = tmp_path / "cxx"
    script.write_text("#!/bin/sh\necho 'runtime.cpp:1: no such thing' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(RuntimeError, match=r"failed with 3:\nruntime.cpp:1: no such thing"):
        build(tmp_path / "runtime")
    assert [p for p in (tmp_path / "runtime").rglob("*") if p.is_file()] == []
