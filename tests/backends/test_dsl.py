"""Driving the DSL's compiler: what ptxas says, what PTX holds, settings that do not leak."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backends import dsl
from backends.base import Resources

LOG = """\x1b[96mremark[ptxas info]:\x1b[0m ptxas output: ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_100a'
ptxas info    : Function properties for first
ptxas         .     48 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 3 barriers, 48 bytes cumulative stack size, 1088 bytes smem, 920 bytes cmem[0]
ptxas info    : Compile time = 1.922 ms
ptxas info    : Compiling entry function 'second' for 'sm_100a'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


def test_ptxas_figures_by_kernel():
    assert dsl.parse_ptxas(LOG) == {
        "first": Resources(255, 3, 1088, 920, 48, 24, 36),
        "second": Resources(12, 0, 0, 0, 0, 0, 0),
    }
    assert dsl.parse_ptxas("") == {}


def test_entries_of_a_module():
    ptx = (
        ".visible .entry kernel_a_0(\n.param .u32 x\n)\n{}\n.entry b$1()\n{}\n.func helper()\n{}\n// .entry not_this\n"
    )
    assert dsl.entries(ptx) == ("kernel_a_0", "b$1")
    assert dsl.entries("") == ()


def test_settings_are_put_back(monkeypatch):
    from cutlass.cutlass_dsl import CuTeDSL

    manager = CuTeDSL._get_dsl().envar
    before = (manager._arch, manager.shared_libs, manager.disable_file_caching)
    monkeypatch.delenv("CUTE_DSL_ARCH", raising=False)
    with pytest.raises(ZeroDivisionError), dsl.settings("sm_90a", Path("/library.so")) as live:
        assert live.envar.arch == os.environ["CUTE_DSL_ARCH"] == "sm_90a"
        assert live.envar.shared_libs == "/library.so"
        with dsl.settings("sm_100a", None):
            assert live.envar.arch == "sm_100a" and live.envar.shared_libs == "/library.so"
        raise ZeroDivisionError
    assert before == (manager._arch, manager.shared_libs, manager.disable_file_caching)
    assert "CUTE_DSL_ARCH" not in os.environ
