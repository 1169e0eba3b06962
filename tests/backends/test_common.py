"""Compiling through the cache: memory, disk, damage, two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
import pytest
import torch

import backends
from backends.cache import Cache
from tests.backends.sample_kernels import AddScaled, Hidden, Twice


def vectors(backend, n: int = 8) -> list[torch.Tensor]:
    return [backend.empty((n,), torch.float32) for _ in range(3)]


def add(backend, kernel=None, n: int = 8):
    return backend.compile(kernel or AddScaled(), *vectors(backend, n), backend.stream())


def test_built_then_memory_then_disk(backend, cache, recorder):
    with backend.count() as counters:
        first = add(backend)
        again = add(backend, n=1000)
    assert (first.origin, again.origin, counters.compiles) == ("built", "memory", 1)
    assert again.function is first.function
    fresh = backends.get("emulated", backend.arch, cache=cache, run=recorder)
    with fresh.count() as counters:
        loaded = add(fresh)
    assert (loaded.origin, counters.compiles) == ("disk", 0)
    assert (loaded.key, loaded.ptx, loaded.kernels) == (first.key, first.ptx, first.kernels)
    assert loaded.resources == first.resources and loaded.folder == first.folder
    x = vectors(fresh)
    fresh.launch(loaded, *x, fresh.stream())
    assert recorder.launches[0]["entry"] == first.kernels[0]


def test_what_lies_in_the_folder(backend):
    compiled = add(backend)
    assert {f.name for f in compiled.folder.iterdir()} == {"kernel.o", "kernel.ptx", "key.json", "ptxas.json"}
    assert f".target {backend.arch}" in compiled.ptx and ".loc" in compiled.ptx
    assert (compiled.folder / "kernel.ptx").read_text() == compiled.ptx
    says = json.loads((compiled.folder / "key.json").read_text())["inputs"]
    assert says["arch"] == backend.arch
    assert says["kernel"] == "tests.backends.sample_kernels.AddScaled:AddScaled(scale=1)"
    assert any(name.endswith("sample_kernels.py") for name in says["sources"])
    assert says["versions"]["dsl"] == "4.8.1"
    [figures] = compiled.resources.values()
    assert list(compiled.resources) == list(compiled.kernels)
    assert 8 <= figures.registers <= 64 and figures.spill_stores == figures.spill_loads == figures.shared == 0


def test_settings_options_and_types_compile_apart(blackwell):
    keys = {
        add(blackwell).key,
        add(blackwell, AddScaled(2)).key,
        blackwell.compile(AddScaled(), *vectors(blackwell), blackwell.stream(), options="--opt-level 2").key,
        blackwell.compile(
            AddScaled(), *(blackwell.tensor(t, "x", dynamic=False) for t in vectors(blackwell)), blackwell.stream()
        ).key,
    }
    assert len(keys) == 4


def test_two_architectures_in_one_process(cache, recorder):
    made = [backends.get("emulated", arch, cache=cache, run=recorder) for arch in backends.ARCHES]
    compiled = [add(b) for b in made]
    assert [c.ptx.split(".target ")[1].split()[0] for c in compiled] == list(backends.ARCHES)
    with pytest.raises(ValueError, match="launch: AddScaled was compiled for sm_100a, this backend is sm_90a"):
        made[1].launch(compiled[0], *vectors(made[1]), made[1].stream())


@pytest.mark.parametrize("name", ["kernel.o", "kernel.ptx", "ptxas.json", "key.json"])
def test_a_truncated_file_is_built_again(blackwell, cache, recorder, name):
    file = add(blackwell).folder / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    fresh = backends.get("emulated", cache=cache, run=recorder)
    compiled = add(fresh)
    assert compiled.origin == "built"
    assert cache.find(compiled.key) == compiled.folder


def test_an_entry_that_is_whole_but_does_not_load_is_built_again(blackwell, cache, recorder):
    compiled = add(blackwell)
    cache.discard(compiled.key)

    def nonsense(folder):
        for name in ("kernel.o", "kernel.ptx", "ptxas.json"):
            (folder / name).write_bytes(b"{}")
        return {}

    cache.get(compiled.key, nonsense)
    fresh = backends.get("emulated", cache=cache, run=recorder)
    again = add(fresh)
    assert again.origin == "built" and again.kernels == compiled.kernels


@pytest.mark.parametrize("moment", ["found", "loaded"])
def test_another_process_throws_an_entry_away_meanwhile(blackwell, cache, recorder, monkeypatch, moment):
    compiled = add(blackwell)
    fresh = backends.get("emulated", cache=cache, run=recorder)
    owner, name = (cache, "find") if moment == "found" else (fresh, "_load")
    does = getattr(owner, name)

    def and_vanishes(*args):
        monkeypatch.setattr(owner, name, does)
        done = does(*args)
        cache.discard(compiled.key)
        return done

    monkeypatch.setattr(owner, name, and_vanishes)
    again = add(fresh)
    assert (again.ptx, again.kernels) == (compiled.ptx, compiled.kernels)
    x = vectors(fresh)
    fresh.launch(again, *x, fresh.stream())
    assert recorder.launches[0]["entry"] == compiled.kernels[0]


def test_a_compile_that_fails_leaves_no_entry(blackwell, cache):
    with pytest.raises(Exception, match="no-such-option"):
        blackwell.compile(AddScaled(), *vectors(blackwell), blackwell.stream(), options="--no-such-option 3")
    assert not list((cache.root / "kernels").glob("*"))


def test_fake_tensors_and_real_ones(blackwell, recorder):
    n = cute.sym_int()
    fakes = [cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,), assumed_align=16) for _ in range(3)]
    compiled = blackwell.compile(AddScaled(), *fakes, blackwell.stream())
    blackwell.launch(compiled, *vectors(blackwell, 300), blackwell.stream())
    assert recorder.launches[0]["grid"] == (3, 1, 1)


def test_unkeyable_input_is_refused(blackwell):
    class Loose:
        def __call__(self): ...

    with pytest.raises(ValueError, match=r"compile: .*Loose has neither key\(\)"):
        blackwell.compile(Loose())
    with pytest.raises(ValueError, match="compile: argument 1 is a object"):
        blackwell.compile(AddScaled(), vectors(blackwell)[0], object())


def test_a_config_attribute_serves_as_the_key(blackwell):
    @dataclass(frozen=True)
    class Config:
        scale: int

    class Wrapped(Hidden):
        key = None

        def __init__(self, config):
            self.config = config
            self.scale = config.scale

    assert add(blackwell, Wrapped(Config(2))).key != add(blackwell, Wrapped(Config(3))).key


def test_compile_time_arguments_are_not_launched(backend, recorder):
    b = backend
    x, y, z = vectors(b, 64)
    args = (x, y, 7, z, cutlass.Int32(50), b.stream())
    compiled = b.compile(Twice(), *args)
    assert compiled.dropped == {2} and len(compiled.kernels) == 2
    with b.count() as counters:
        b.launch(compiled, *args)
        b.launch(compiled, x, y, 7, z, cutlass.Int32(12), b.stream())
    assert counters.kernels == [*compiled.kernels, *compiled.kernels] and counters.launches == 4
    assert [launch["cluster"] for launch in recorder.launches] == [(2, 1, 1), (1, 1, 1)] * 2
    counts = [int.from_bytes(launch["parameters"][-1], "little") for launch in recorder.launches]
    assert counts == [50, 50, 12, 12]


CHILD = """
import sys, time
sys.path[:0] = [{root!r}]
import torch, backends
from tests.backends.sample_kernels import AddScaled
b = backends.get("emulated", run=lambda *a, **k: None)
x = [b.empty((8,), torch.float32) for _ in range(3)]
c = b.compile(AddScaled(5), *x, b.stream())
b.launch(c, *x, b.stream())
print(c.origin, c.key)
"""


def test_two_processes_compile_one_kernel_once(root, cache):
    code = CHILD.format(root=str(root))
    environment = {**os.environ, "WORKBENCH_CACHE": str(cache.root)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    answers = [p.communicate(timeout=120)[0].split() for p in processes]
    assert sorted(origin for origin, _ in answers) == ["built", "disk"]
    assert answers[0][1] == answers[1][1]
    here = backends.get("emulated", cache=Cache(cache.root), run=lambda *a, **k: None)
    assert add(here, AddScaled(5)).origin == "disk"
