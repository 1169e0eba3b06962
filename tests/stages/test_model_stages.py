"""Stages of the model and of its operations: data is what it says, judges don't share the tested code."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stages.shared import decode, tiny


class Case(SimpleNamespace):
    """A case as the judge makes it, without its checks."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stage(name: str) -> Any:
    return importlib.import_module(f"stages.{name}")


def test_every_mistake_of_the_tiny_model_changes_its_logits() -> None:
    ids = tiny.text()[:140]
    right = tiny.logits(ids, torch.float32)
    changed = {name: tiny.logits(ids, torch.float32, values) for name, values in tiny.mistakes().items()}
    assert len(changed) == 14
    for name, logits in changed.items():
        assert float((logits - right).abs().max()) > 1e-3, name
    assert torch.equal(tiny.logits(ids, torch.float32), right)


def test_the_judge_of_the_model_does_not_use_the_model() -> None:
    """`tiny.logits` calls oracles alone: no cache, no plan, no forward pass of `model`."""
    tree = ast.parse(Path(tiny.__file__).read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "logits")
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    assert "sequence" in names and not names & {"Model", "Cache", "model", "cache"}


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_decode_rings_hold_nan_exactly_where_no_token_is(length: int) -> None:
    x = decode.inputs(Case(lengths=[length], counts=[3], h=2, k=5, entries=9), rng())
    empty = x["window"][0].isnan().all(dim=1)
    assert int(empty.sum()) == max(0, 128 - length)
    assert x["pool"][-1].isnan().all() and not x["pool"][:-1].isnan().any()
    assert bool((x["ids"][0, :3] >= 0).all()) and set(x["ids"][0, 3:].tolist()) <= {-1, 8}


def test_decode_attention_ignores_what_may_not_be_read() -> None:
    x = decode.inputs(Case(lengths=[5, 140], counts=[0, 4], h=2, k=6, entries=12), rng())
    found = decode.attended(x, x["window"], x["pool"])
    assert bool(found["out"].isfinite().all()) and bool(found["lse"].isfinite().all())
    other = {**x, "ids": torch.where(torch.arange(6) >= x["counts"][:, None], 2, x["ids"])}
    assert torch.equal(decode.attended(other, x["window"], x["pool"])["out"], found["out"])


def test_topk_inputs_hide_infinities_and_nan_behind_the_counts() -> None:
    x = stage("indexer_topk").inputs(Case(t=20, w=30, k=4, grain=4), rng())
    hidden = torch.arange(30) >= x["counts"][:, None]
    assert not bool(x["scores"][hidden].isfinite().any()) and bool(x["scores"][~hidden].isfinite().all())
    visible = [row[:n].unique().numel() < n for row, n in zip(x["scores"], x["counts"].tolist(), strict=True) if n > 25]
    assert visible and all(visible), "many scores are equal"


def test_compressed_entries_do_not_depend_on_where_the_text_is_cut() -> None:
    hca = stage("compressor_hca")
    whole = hca.inputs(Case(t=300, d=64, width=512), rng())
    cut = Case(t=180, d=64, width=512, start=120)
    entries = hca.oracle(whole, Case(t=300, d=64, width=512), "ideal")["entries"]
    assert torch.equal(hca.oracle(whole, cut, "ideal")["entries"], entries) and len(entries) == 2


def test_experts_without_a_token_and_tokens_with_the_same_experts_are_there() -> None:
    x = stage("moe_nvfp4").inputs(Case(t=9, e=6, d=64, width=64, k=2), rng())
    assert 5 not in x["experts"] and torch.equal(x["experts"][0], x["experts"][1])
    assert len(x["w1_global"].unique()) == 6 and torch.equal(x["w1_global"], x["w3_global"])


def test_speculative_inputs_are_the_greedy_text() -> None:
    case = Case(prompt=5, drafts=1, accepts=[1, 0])
    x = stage("mtp_tiny").inputs(case, rng())
    text = torch.cat((x["ids"], x["following"]))
    assert len(x["following"]) == 6
    assert torch.equal(tiny.logits(text, torch.float32).argmax(-1)[4:-1], x["following"])


@pytest.mark.parametrize("name", ["embedding", "hc_head", "mhc_post", "router", "lm_head"])
def test_empty_problems_have_empty_answers_and_no_mistakes(name: str) -> None:
    fields = {"t": 0, "d": 64, "vocabulary": 10, "e": 8, "k": 2, "scale": 1.5, "v": 9}
    case = Case(**fields)
    x = stage(name).inputs(case, rng())
    assert stage(name).wrong(x, case) == {}
    plain, ideal = stage(name).plain(x, case), stage(name).oracle(x, case, "ideal")
    assert all(plain[output].numel() == 0 and plain[output].shape == ideal[output].shape for output in ideal)
