"""What tells two compiles apart, and what must not."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import types

import cutlass
import cutlass.cute as cute
import pytest
import torch

from backends import key
from tests.backends.sample_kernels import AddScaled, Hidden, Twice


@dataclasses.dataclass(frozen=True)
class Config:
    tile: int = 128


class Configured:
    def __init__(self, config):
        self.config = config

    def __call__(self, x): ...


class Bare:
    def __call__(self, x): ...


@dataclasses.dataclass
class Thawed:
    tile: int = 128

    def __call__(self, x): ...


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


def describe(*args, kernel=None):
    return key.describe_arguments(kernel or Bare(), args)


def test_kernels_are_told_apart_by_their_settings():
    assert key.describe_kernel(AddScaled(1)) != key.describe_kernel(AddScaled(2))
    assert key.describe_kernel(AddScaled(2)) == key.describe_kernel(AddScaled(2))
    assert key.describe_kernel(Hidden(1.0)) == "tests.backends.sample_kernels.Hidden:scale=1.0"
    assert key.describe_kernel(Configured(Config(64))).endswith("Configured:Config(tile=64)")


def test_a_kernel_without_readable_settings_is_refused():
    with pytest.raises(ValueError, match=r"Bare has neither key\(\) nor"):
        key.describe_kernel(Bare())
    with pytest.raises(ValueError, match="Thawed must be a frozen dataclass"):
        key.describe_kernel(Thawed())


def test_compile_time_positions():
    assert key.compile_time_positions(Twice()) == {2}
    assert key.compile_time_positions(AddScaled()) == frozenset()


def test_run_time_numbers_count_by_type_and_compile_time_ones_by_value(blackwell):
    t = blackwell.tensor(torch.zeros(4), "t")
    stream = blackwell.stream()

    def of(by, n):
        return key.describe_arguments(Twice(), (t, t, by, t, n, stream))

    assert of(1, cutlass.Int32(5)) == of(1, cutlass.Int32(6))
    assert of(1, cutlass.Int32(5)) != of(2, cutlass.Int32(5))
    assert of(cutlass.Int32(1), cutlass.Int32(5)) != of(cutlass.Int32(2), cutlass.Int32(5))
    assert of(1, cutlass.Int32(5)) != of(1, cutlass.Int64(5))
    assert of(1, 5) != of(1, 6)


def test_tensors_count_by_layout_type_not_by_shape(blackwell):
    def of(t, **options):
        return describe(blackwell.tensor(t, "t", **options))

    assert of(torch.zeros(4, 8)) == of(torch.zeros(16, 32))
    assert of(torch.zeros(4, 8)) == of(torch.zeros(4, 1))
    assert of(torch.zeros(4, 8)) == of(torch.zeros(0, 8))
    assert of(torch.zeros(4, 8)) != of(torch.zeros(4, 8).t())
    assert of(torch.zeros(4, 8)) != of(torch.zeros(4, 8, dtype=torch.bfloat16))
    assert of(torch.zeros(4, dtype=torch.int8)) != of(torch.zeros(4, dtype=torch.uint8))
    assert of(torch.zeros(4, 8)) != of(torch.zeros(4, 8), align=64)
    assert of(torch.zeros(4, 8)) != of(torch.zeros(4, 8), divisibility={1: 8})
    assert of(torch.zeros(4, 8), dynamic=False) != of(torch.zeros(4, 16), dynamic=False)


def test_shared_symbols_of_fake_tensors():
    def fake(n):
        return cute.runtime.make_fake_compact_tensor(cutlass.Float32, (n,), assumed_align=16)

    m, n = cute.sym_int(), cute.sym_int()
    assert describe(fake(m), fake(m)) != describe(fake(m), fake(n))
    assert describe(fake(m), fake(n)) == describe(fake(n), fake(m))


def test_containers_and_plain_values():
    assert describe((1, 2)) != describe([1, 2])
    assert describe({"a": 1}) != describe({"a": 2})
    assert describe(Config(1)) != describe(Config(2))
    assert describe(Mode.FAST) != describe(Mode.EXACT)
    assert describe(None) != describe(0)
    assert describe(1) != describe(True) != describe(1.0)
    with pytest.raises(ValueError, match=r"argument 1\[0\] is a object; allowed"):
        describe(1, [object()])


def test_editing_a_source_changes_the_key(tmp_path, monkeypatch):
    (tmp_path / "lonely.py").write_text("class K:\n    def __call__(self): ...\n")
    package = tmp_path / "pack" / "inner"
    package.mkdir(parents=True)
    for folder in (tmp_path / "pack", package):
        (folder / "__init__.py").write_text("")
    (package / "k.py").write_text("class K:\n    def __call__(self): ...\n")
    (package / "other.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import lonely
    from pack.inner import k

    before = key.describe_sources(lonely.K()), key.describe_sources(k.K())
    assert str(tmp_path / "lonely.py") in before[0]
    assert {str(package / "other.py"), str(tmp_path / "pack" / "__init__.py")} <= set(before[1])
    assert before == (key.describe_sources(lonely.K()), key.describe_sources(k.K()))
    (package / "other.py").write_text("x = 2\n")
    os.utime(package / "other.py", ns=(1, 1))
    after = key.describe_sources(lonely.K()), key.describe_sources(k.K())
    assert after[0] == before[0] and after[1] != before[1]


def test_the_kernels_package_is_part_of_every_key(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "config.py").write_text("tile = 1\n")
    monkeypatch.setattr(key, "ROOT", tmp_path)
    assert str(tmp_path / "kernels" / "config.py") in key.describe_sources(AddScaled())


def test_a_class_without_a_file_counts_by_its_text(monkeypatch):
    module = types.ModuleType("cell")  # as in a notebook
    exec("class Cell:\n    def __call__(self): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "cell", module)
    monkeypatch.setattr(key.inspect, "getsource", lambda owner: "first")
    first = key.describe_sources(module.Cell())
    monkeypatch.setattr(key.inspect, "getsource", lambda owner: "second")
    assert "<cell.Cell>" in first
    assert key.describe_sources(module.Cell()) != first


def test_versions_and_flags_are_named(monkeypatch):
    versions = key.versions()
    assert versions["dsl"] == "4.8.1" and versions["python"].startswith("3.")
    assert "CUDA" in versions["ptxas"] and versions["host"]
    flags = key.debug_flags()
    assert "lineinfo=False" in flags and "arch=" not in flags and "shared_libs=" not in flags
    from cutlass.cutlass_dsl import CuTeDSL

    monkeypatch.setattr(CuTeDSL._get_dsl().envar, "lineinfo", True)
    assert key.debug_flags() != flags


def test_digest_ignores_order():
    assert key.digest({"a": 1, "b": [2]}) == key.digest({"b": [2], "a": 1})
    assert len(key.digest({})) == 64
