"""`backends.get`, and what importing the package costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import backends


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


def test_importing_backends_imports_neither_torch_nor_cutlass(root):
    done = run(
        f"import sys; sys.path.insert(0, {str(root)!r}); import backends; "
        "print([m for m in ('torch', 'cutlass', 'cuda', 'emulator') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", ["", "gpu", "Emulated"])
def test_unknown_name_is_named(name):
    with pytest.raises(ValueError, match=rf"name={name!r}.*auto, emulated, cuda"):
        backends.get(name)


@pytest.mark.parametrize("arch", ["sm_100", "sm_80", "100a", ""])
def test_unknown_arch_is_named(arch):
    with pytest.raises(ValueError, match=rf"arch={arch!r}.*sm_100a, sm_90a"):
        backends.get("emulated", arch)


def test_auto_is_the_emulator_without_a_gpu(cache, monkeypatch):
    monkeypatch.setattr("backends.cuda.gpu_arch", lambda: None)
    assert backends.get("auto", "sm_90a", cache=cache).evidence == "emulated sm_90a"


def test_auto_is_the_emulator_when_the_gpu_is_another(cache, monkeypatch):
    monkeypatch.setattr("backends.cuda.gpu_arch", lambda: "sm_90a")
    assert backends.get("auto", "sm_100a", cache=cache).name == "emulated"


def test_it_does_not_matter_that_cutlass_came_first(root, tmp_path):
    code = (
        f"import sys; sys.path[:0] = [{str(root)!r}]\n"
        "import cutlass, backends\n"
        "from tests.backends.sample_kernels import AddScaled\n"
        "import torch\n"
        "seen = []\n"
        "b = backends.get('emulated', 'sm_90a', run=lambda *a, **k: seen.append(a[1]))\n"
        "t = b.empty((4,), torch.float32)\n"
        "b.launch(b.compile(AddScaled(), t, t, t, b.stream()), t, t, t, b.stream())\n"
        "print(len(seen), cutlass.cutlass_dsl.CuTeDSL._get_dsl().envar.shared_libs.count('standin'))\n"
    )
    done = run(code, WORKBENCH_CACHE=str(tmp_path))
    assert done.stdout.split() == ["1", "0"], done.stderr
