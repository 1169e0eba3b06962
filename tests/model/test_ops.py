"""The table of operations: kernels where they are proven and serve the model, oracles elsewhere, and why."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from gate.load import load
from model.checkpoint import load as load_weights
from model.checkpoint import random_tensors, weights_from, write
from model.config import Config
from model.kernels import KERNELS
from model.ops import GATES, STORING, Given, Kernel, Ops
from tests.model.kernels.bench import Everything


def kernel(op: str, gate: str, *arches: str, refuses: str = "") -> Kernel:
    return Kernel(op, arches, lambda bound: lambda *args: (bound.backend, op), (gate,), lambda given: refuses)


def why(ops: Ops) -> dict[str, str]:
    return {row.op: row.why for row in ops.rows}


def test_oracles_everywhere_unless_proven() -> None:
    ops = Ops.oracles()
    assert ops.kernels == () and [row.op for row in ops] == list(GATES)
    assert all(row.source == "oracle" for row in ops)
    assert "attention" in str(ops) and "fmha_decode" in str(ops)


def test_a_kernel_needs_a_proof_on_its_arch() -> None:
    kernels = (
        kernel("logits", "lm_head", "sm100"),
        kernel("embed", "embedding", "sm100", "sm90"),
        kernel("route", "router", "sm90"),
    )
    ledger = {"lm_head": SimpleNamespace(proven=True), "embedding": False, "router": True}
    ops = Ops.from_ledger("sm100", ledger, backend=lambda: "device", kernels=kernels)
    assert ops.kernels == ("logits",)
    assert ops.logits() == ("device", "logits")
    assert why(ops)["logits"] == "proven on sm100"
    assert why(ops)["embed"] == "embedding is not proven on sm100"
    assert why(ops)["route"] == "the kernel is for sm90, not sm100"
    assert why(ops)["attention"] == "no kernel yet"
    assert Ops.from_ledger("sm90", ledger, kernels=kernels).kernels == ("route",)


def test_all_gates_of_a_kernel_must_be_proven() -> None:
    both = Kernel("logits", ("sm90",), lambda bound: lambda: "ran", ("rope", "multi_linear", "mhc_post"))
    ops = Ops.from_ledger("sm90", {"rope": True}, kernels=(both,))
    assert ops.kernels == () and why(ops)["logits"] == "multi_linear, mhc_post are not proven on sm90"
    ops = Ops.from_ledger("sm90", {"rope": True, "multi_linear": True, "mhc_post": True}, kernels=(both,))
    assert ops.logits() == "ran" and {r.op: r.gate for r in ops}["logits"] == "rope, multi_linear, mhc_post"


def test_the_last_kernel_that_may_run_does_and_the_row_says_what_the_others_lack(config: Config, small: Any) -> None:
    given = Given(config, small, torch.bfloat16)
    kernels = (
        kernel("route", "router", "sm90"),
        kernel("route", "embedding", "sm90", refuses="no: too wide"),
        kernel("route", "rope", "sm90"),
        kernel("route", "rope", "sm100"),
    )
    ops = Ops.from_ledger("sm90", {"router": True, "embedding": True}, kernels=kernels, given=given)
    assert ops.kernels == ("route",) and {r.op: r.gate for r in ops}["route"] == "router"
    assert why(ops)["route"] == "proven on sm90; rope is not proven on sm90; no: too wide"
    assert Ops.from_ledger("sm100", {"rope": True}, kernels=kernels, given=given).kernels == ("route",)
    none = Ops.from_ledger("sm90", {}, kernels=kernels[:2], given=given)
    assert why(none)["route"] == "no: too wide; router is not proven on sm90"


def test_no_backend_is_made_for_nothing() -> None:
    def backend() -> Any:
        raise AssertionError("made")

    ops = Ops.from_ledger("sm90", {}, backend=backend, kernels=KERNELS, without="switched off")
    assert ops.kernels == () and ops.packed_nbytes == 0 and why(ops)["embed"] == "switched off"


def test_the_table_names_every_operation() -> None:
    screen = io.StringIO()
    Console(file=screen, width=200).print(Ops.oracles().table())
    assert all(op in screen.getvalue() for op in GATES)


def test_unknown_operations_are_named() -> None:
    with pytest.raises(ValueError, match="kernels for attenton; allowed: embed"):
        Ops.from_ledger("sm100", {}, kernels=(kernel("attenton", "rope", "sm100"),))
    with pytest.raises(ValueError, match="operations atention; allowed"):
        Ops.oracles().replaced(atention=print)
    with pytest.raises(AttributeError, match="no operation 'nothing'"):
        _ = Ops.oracles().nothing


def test_every_gate_of_the_table_exists(root: Any) -> None:
    gates = load(root)
    named = {gate for gates_of_op in GATES.values() for gate in gates_of_op}
    named |= {gate for k in KERNELS for gate in (*k.gates, *(g for more in k.storing.values() for g in more))}
    assert named <= set(gates.file.gates) and set(STORING) <= set(GATES)
    for k in KERNELS:
        assert all(set(k.arches) <= set(gates[gate].arch) for gate in k.gates), k


@pytest.fixture(scope="module")
def small(config: Config, tensors: dict[str, torch.Tensor]) -> Any:
    """Weights of the tiny model in BF16."""
    return weights_from(config, tensors, dtype=torch.bfloat16)


def test_kernels_say_what_they_lack_in_a_model(config: Config, small: Any) -> None:
    def table(arch: str = "sm90", **changed: Any) -> Ops:
        given = replace(Given(config, small, torch.bfloat16), **changed)
        return Ops.from_ledger(
            arch, Everything(), kernels=KERNELS, given=given, backend=lambda: SimpleNamespace(device="cpu")
        )

    plain = table()
    assert plain.kernels == ("mhc_post", "qkv_projection", "index_queries", "output_projection")
    forms = "torch.bfloat16; the linear kernels take nvfp4, mxfp4, fp8"
    assert (
        why(plain)["qkv_projection"] == f"proven on sm90; its linears in PyTorch; layers.0.attn.wq_a and wkv: {forms}"
    )
    assert why(plain)["logits"].startswith(f"head: {forms}; inputs of linears are stored as bf16; the pass stores")
    assert why(plain)["mhc_pre"] == "inputs of linears are stored as bf16; the pass stores fp8 or nvfp4"
    assert set(table(stored="fp8").kernels) == {k.op for k in KERNELS}
    rows = {row.op: row for row in table(stored="nvfp4", arch="sm100")}
    assert rows["output_projection"].gate == "rope, quantize_nvfp4"
    assert "torch.bfloat16; the linear kernels take nvfp4" in rows["output_projection"].why
    blocks = "inputs of linears are stored as fp8; the block-scaled linears take nvfp4"
    assert blocks in why(table(stored="fp8", arch="sm100"))["shared_expert"]
    assert set(why(table(dtype=torch.float32)).values()) == {
        "no kernel yet",
        "activations are torch.float32; the kernels take torch.bfloat16",
    }
    streams = replace(config, hc_mult=2)
    assert why(table(config=streams))["mhc_post"] == "hc_mult=2; the mHC kernels take 4"
    narrow = why(table(config=replace(config, head_dim=96)))
    assert narrow["qkv_projection"] == "c=96; allowed: 64, 128, 256, 512"
    assert "= 48; allowed: 16, 32, 64, 128" in why(table(config=replace(config, qk_rope_head_dim=48)))["index_queries"]


def test_scales_of_fp8_blocks_are_not_cut(config: Config, tmp_path: Any) -> None:
    small = replace(config.with_ratios(0), o_lora_rank=64)
    folder = write(tmp_path, small, random_tensors(small), "native")
    _, weights = load_weights(folder)
    given = Given(small, weights, torch.bfloat16)
    backend = SimpleNamespace(device="cpu")
    ops = Ops.from_ledger("sm90", Everything(), kernels=KERNELS, given=given, backend=lambda: backend)
    wanted = "layers.0.attn.wo_a: fp8 in groups of 64 rows; the linear kernels take multiples of 128"
    assert why(ops)["output_projection"] == f"proven on sm90; its linears in PyTorch; {wanted}"
    assert why(ops)["qkv_projection"] == "proven on sm90"
