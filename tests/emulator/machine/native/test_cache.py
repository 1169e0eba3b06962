"""Images on disk: found again, ignored when damaged, no error when the disk refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import emulator
from emulator.machine.native import cache, program
from emulator.machine.native.program import NativeProgram
from tests.emulator.machine.arena import HEADER

TEXT = f"{HEADER}.visible .entry k(.param .u64 p) {{ .reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; "
TEXT += "mov.u32 %r1, %tid.x; mul.lo.u32 %r1, %r1, 3; st.global.u32 [%rd1], %r1; ret; }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that keeps everything."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(program, "WORTH_KEEPING", 0)
    return tmp_path / "native"


def _run(module: emulator.Launch) -> int:
    from emulator.memory.globals import GlobalMemory

    out = np.zeros(1, np.uint32)
    memory = GlobalMemory()
    memory.register(out.ctypes.data, out.nbytes, "out")
    emulator.run(module, "k", (1, 1, 1), (32, 1, 1), [out.ctypes.data.to_bytes(8, "little")], memory)
    return int(out[0])


def test_an_image_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second translation compiles nothing, and the kernel works: the last lane wins."""
    assert _run(emulator.parse(TEXT)) == 93
    kept = {p.name for p in folder.iterdir()}

    def refuse(*_: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(program, "compile_text", refuse)
    assert _run(emulator.parse(TEXT)) == 93
    assert {p.name for p in folder.iterdir()} == kept and len(kept) in (1, 2)
    with pytest.raises(AssertionError, match="compiled again"):
        NativeProgram(emulator.parse(TEXT.replace(", 3;", ", 5;")), "k")


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None])
def test_a_damaged_image_is_made_anew(folder: Path, damage: bytes | None) -> None:
    """Empty, foreign or cut short."""
    NativeProgram(emulator.parse(TEXT), "k")
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert cache.find(f"k\n{TEXT}") is None
    assert _run(emulator.parse(TEXT)) == 93
    assert cache.find(f"k\n{TEXT}") is not None


def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be made is no error."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(program, "WORTH_KEEPING", 0)
    assert _run(emulator.parse(TEXT)) == 93


def test_only_slow_translations_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of five instructions leaves nothing but, perhaps, the runtime."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(program, "WORTH_KEEPING", 60)
    NativeProgram(emulator.parse(TEXT), "k")
    assert cache.find(f"k\n{TEXT}") is None
