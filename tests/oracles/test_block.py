"""One block after the other against transformers' own layers, and what a layer may see."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oracles.block import block, layer_frequencies
from oracles.rope import Yarn, frequencies
from tests.oracles import tiny


def streams(tokens: int) -> torch.Tensor:
    return torch.randn(tokens, 4, 256, generator=torch.Generator().manual_seed(tokens))


def ids(tokens: int) -> torch.Tensor:
    return torch.randint(0, 512, (tokens,), generator=torch.Generator().manual_seed(tokens))


def test_the_frequencies_of_a_layer_follow_its_compressor() -> None:
    assert torch.equal(layer_frequencies(tiny.CONFIG, 0), frequencies(64, theta=10000.0))
    for ratio in (4, 128):
        assert torch.equal(layer_frequencies(tiny.CONFIG, ratio), frequencies(64, theta=160000.0, yarn=Yarn()))


@pytest.mark.parametrize(("ratio", "tokens"), [(0, 150), (4, 40), (128, 260)])
def test_a_token_sees_nothing_of_what_follows(ratio: int, tokens: int) -> None:
    """Changing the last token changes no earlier row: neither does a window that is not full leak through its entry."""
    t = tiny.layer(torch.Generator().manual_seed(7), tiny.CONFIG, ratio, False)
    x = streams(tokens)
    changed = x.clone()
    changed[-1] += 1.0
    before, after = (block(s, ids(tokens), t, tiny.CONFIG, ratio, dtype=torch.float32) for s in (x, changed))
    torch.testing.assert_close(before[:-1], after[:-1], rtol=1e-5, atol=1e-5)
    assert (before[-1] - after[-1]).abs().max().item() > 0.1


@pytest.mark.parametrize(("ratio", "reach"), [(0, 128), (128, 10**6), (4, 10**6)])
def test_how_far_back_a_layer_sees(ratio: int, reach: int) -> None:
    """Through the window 128 positions with itself, through compressed entries everything."""
    config: dict[str, Any] = tiny.CONFIG | {"index_topk": 64}
    t = tiny.layer(torch.Generator().manual_seed(8), config, ratio, False)
    x = streams(200)
    changed = x.clone()
    changed[0] += 1.0
    before, after = (block(s, ids(200), t, config, ratio, dtype=torch.float32) for s in (x, changed))
    moved = ((before - after).abs().amax(dim=(1, 2)) > 1e-5).nonzero().flatten()
    assert moved.max().item() == min(reach, 200) - 1
