"""The table of operations: kernels where they are proven, oracles elsewhere, and why."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gate.load import load
from model.ops import GATES, Kernel, Ops


def kernel(op: str, *arches: str) -> Kernel:
    return Kernel(op, arches, lambda backend: lambda *args: (backend, op))


def test_oracles_everywhere_unless_proven():
    ops = Ops.oracles()
    assert ops.kernels == () and [row.op for row in ops] == list(GATES)
    assert all(row.source == "oracle" for row in ops)
    assert "attention" in str(ops) and "fmha_decode" in str(ops)


def test_a_kernel_needs_a_proof_on_its_arch():
    kernels = (kernel("logits", "sm_100a"), kernel("embed", "sm_100a", "sm_90a"), kernel("route", "sm_90a"))
    ledger = {"lm_head": SimpleNamespace(proven=True), "embedding": False, "router": True}
    ops = Ops.from_ledger("sm_100a", ledger, backend="device", kernels=kernels)
    assert ops.kernels == ("logits",)
    assert ops.logits() == ("device", "logits")
    why = {row.op: row.why for row in ops.rows}
    assert why["logits"] == "lm_head passes on sm_100a"
    assert why["embed"] == "embedding is not proven on sm_100a"
    assert why["route"] == "the kernel is for sm_90a, not sm_100a"
    assert why["attention"] == "no kernel yet"
    assert Ops.from_ledger("sm_90a", ledger, kernels=kernels).kernels == ("route",)


def test_the_table_names_every_operation():
    screen = io.StringIO()
    Console(file=screen, width=120).print(Ops.oracles().table())
    assert all(op in screen.getvalue() for op in GATES)


def test_unknown_operations_are_named():
    with pytest.raises(ValueError, match="kernels for attenton; allowed: embed"):
        Ops.from_ledger("sm_100a", {}, kernels=(kernel("attenton", "sm_100a"),))
    with pytest.raises(ValueError, match="operations atention; allowed"):
        Ops.oracles().replaced(atention=print)
    with pytest.raises(AttributeError, match="no operation 'nothing'"):
        _ = Ops.oracles().nothing


def test_every_gate_of_the_table_exists(root: Any):
    known = set(load(root).file.gates)
    assert set(GATES.values()) <= known
