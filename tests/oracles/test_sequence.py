"""The whole model against transformers on random weights: logits, hidden states, routing; and the draft block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from oracles import block, embedding, head, indexer, mhc, mtp, sequence
from tests.oracles import tiny


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads are many times slower on tensors as small as these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return tiny.tensors(tiny.CONFIG)


@pytest.fixture(scope="module")
def transformers_model(tensors: dict[str, torch.Tensor]) -> Any:
    return tiny.transformers_model(tensors, tiny.CONFIG)


def prompt(tokens: int) -> torch.Tensor:
    return torch.randint(0, 512, (tokens,), generator=torch.Generator().manual_seed(1000 + tokens))


@pytest.fixture
def no_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Index scores of exactly 0 are common (every ReLU shut), and which of them is chosen is undefined elsewhere."""
    exact = indexer.topk

    def checked(scores: torch.Tensor, counts: torch.Tensor, k: int) -> torch.Tensor:
        if scores.shape[-1] > k:
            visible = torch.arange(scores.shape[-1]) < counts[:, None]
            best = scores.masked_fill(~visible, -torch.inf).topk(k + 1).values[counts > k]
            assert bool((best[:, k - 1] > best[:, k]).all()), "a tie at the last place: take another prompt"
        return exact(scores, counts, k)

    monkeypatch.setattr(indexer, "topk", checked)


@pytest.mark.usefixtures("no_ties")
@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 8, 127, 128, 129, 300, 420])
def test_logits_equal_transformers(tokens: int, tensors: dict[str, torch.Tensor], transformers_model: Any) -> None:
    ids = prompt(tokens)
    with torch.no_grad():
        want = transformers_model(ids[None]).logits[0]
    got = sequence.forward(ids, tensors, tiny.CONFIG, dtype=torch.float32)
    assert (got - want).abs().max().item() < 2e-5
    assert torch.equal(got.argmax(-1), want.argmax(-1))


@pytest.mark.usefixtures("no_ties")
def test_hidden_states_and_fp64_equal_transformers(tensors: dict[str, torch.Tensor], transformers_model: Any) -> None:
    ids = prompt(150)
    with torch.no_grad():
        result = transformers_model(ids[None], output_hidden_states=True)
    states = sequence.hidden(ids, tensors, tiny.CONFIG)
    assert len(states) == 6
    for mine, theirs in zip(states[:-1], result.hidden_states, strict=False):
        cosine = torch.nn.functional.cosine_similarity(mine.flatten(1), theirs[0].double().flatten(1))
        assert cosine.min().item() > 0.9999999
    got = sequence.forward(ids, tensors, tiny.CONFIG)
    assert got.dtype == torch.float64 and (got - result.logits[0]).abs().max().item() < 2e-5


def test_a_prefix_has_the_logits_that_it_has_in_the_whole(tensors: dict[str, torch.Tensor]) -> None:
    ids = prompt(140)
    whole = sequence.forward(ids, tensors, tiny.CONFIG)
    for cut in (1, 4, 63, 127, 128, 133):
        torch.testing.assert_close(sequence.forward(ids[:cut], tensors, tiny.CONFIG), whole[:cut], rtol=0, atol=1e-11)
    assert (whole[1:] - whole[:-1]).abs().amax(-1).min().item() > 0.1


def test_drafts_step_by_step(tensors: dict[str, torch.Tensor]) -> None:
    """The draft of position i is a block over positions 0 .. i, of the streams at i and the token at i + 1."""
    config, ids = tiny.CONFIG, prompt(9)
    streams = sequence.hidden(ids, tensors, config)[-1][:8]
    own = {name.removeprefix("mtp.0."): t for name, t in tensors.items() if name.startswith("mtp.0.")}
    logits, out = sequence.draft(streams, ids[1:], tensors, config)
    embedded = embedding.streams(ids[1:], tensors["embed.weight"], n=1)[:, 0]
    weights = [own[f"{name}.weight"] for name in ("enorm", "hnorm", "e_proj", "h_proj")]
    x = block.block(mtp.combine(streams, embedded, *weights), ids[1:], own, config, 0)
    mixed = mhc.head(x, own["hc_head_fn"], own["hc_head_scale"], own["hc_head_base"])
    torch.testing.assert_close(out, x, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        logits, head.logits(mixed, own["norm.weight"], tensors["head.weight"]), rtol=0, atol=1e-12
    )
    shorter, _ = sequence.draft(streams[:5], ids[1:6], tensors, config)
    torch.testing.assert_close(shorter, logits[:5], rtol=0, atol=1e-12)


def test_a_second_draft_reuses_the_streams_of_the_first(tensors: dict[str, torch.Tensor]) -> None:
    config, ids = tiny.CONFIG, prompt(10)
    streams = sequence.hidden(ids, tensors, config)[-1][:8]
    _, first = sequence.draft(streams, ids[1:9], tensors, config)
    second, _ = sequence.draft(first, ids[2:], tensors, config)
    assert second.shape == (8, 512) and bool(second.isfinite().all())
    assert (second - sequence.draft(streams, ids[2:], tensors, config)[0]).abs().max().item() > 0.1
