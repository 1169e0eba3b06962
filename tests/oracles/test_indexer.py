"""Index scores against loops, and top-k against Python's own sort, with the score distributions that break kernels."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import indexer
from oracles.formats import index_entry
from oracles.rope import angles, frequencies, rotate

T, HEADS, DIM, WIDTH = 3, 2, 8, 5


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = ((T, HEADS, DIM), (WIDTH, DIM), (T, HEADS))
    q, k, u = (torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes)
    return q, k, u


def test_scores_equal_loops() -> None:
    q, k, u = example()
    got = indexer.scores(q, k, u)
    for t in range(T):
        for w in range(WIDTH):
            dots = [sum(q[t, h, i].item() * k[w, i].item() for i in range(DIM)) for h in range(HEADS)]
            want = sum(u[t, h].item() * max(dot, 0.0) for h, dot in enumerate(dots))
            assert got[t, w].item() == pytest.approx(want, rel=1e-12, abs=1e-13)
    assert bool((got < 0).any())


def test_scores_of_batches_and_empties() -> None:
    q, k, u = example()
    both = indexer.scores(q.expand(2, -1, -1, -1), torch.stack((k, -k)), u.expand(2, -1, -1))
    torch.testing.assert_close(both[1], indexer.scores(q, -k, u), rtol=1e-13, atol=1e-13)
    assert indexer.scores(q, k[:0], u).shape == (T, 0) and indexer.scores(q[:0], k, u[:0]).shape == (0, WIDTH)
    assert torch.equal(indexer.scores(q, k, u, kind="simulated"), indexer.scores(q, k, u).float().double())
    with pytest.raises(ValueError, match=r"u\.shape=\(3, 1\); allowed: \[\.\.\., 3, 2\]"):
        indexer.scores(q, k, u[:, :1])


def test_queries_have_no_norm_and_hadamard_on_both_sides_changes_no_score() -> None:
    rng = torch.Generator().manual_seed(1)
    qr, wq_b = torch.randn(T, 6, generator=rng).double(), torch.randn(2 * 128, 6, generator=rng).double()
    keys, u = torch.randn(9, 128, generator=rng).double(), torch.randn(T, 2, generator=rng).double()
    table = angles(torch.arange(T) + 40, frequencies(64))
    q = indexer.queries(qr, wq_b, *table, heads=2)
    want = rotate((qr @ wq_b.mT).view(T, 2, 128), *(part[:, None] for part in table))
    torch.testing.assert_close(q, want, rtol=1e-13, atol=1e-13)
    turned = indexer.queries(qr, wq_b, *table, heads=2, rotated=True)
    plain = indexer.scores(q, keys, u)
    both = indexer.scores(turned, indexer.hadamard.transform(keys), u)
    torch.testing.assert_close(both, plain, rtol=1e-11, atol=1e-11)
    assert not torch.allclose(indexer.scores(turned, keys, u), plain, atol=1.0)
    rounded = indexer.scores(
        index_entry.rounded_fp8(turned), index_entry.rounded_fp8(indexer.hadamard.transform(keys)), u
    )
    assert 1e-4 < ((rounded - plain).norm() / plain.norm()).item() < 0.1


def test_head_weights_are_scaled_by_both_sizes() -> None:
    x, w = torch.randn(2, 6), torch.randn(64, 6)
    torch.testing.assert_close(
        indexer.head_weights(x, w), x.double() @ w.double().mT * 0.011048543456, rtol=1e-9, atol=0
    )
    got = indexer.head_weights(x.bfloat16(), w, kind="simulated")
    want = (x.bfloat16().double() @ w.double().mT).bfloat16().double() * (128**-0.5 * 64**-0.5)
    assert torch.equal(got, want)


def test_what_is_visible() -> None:
    positions = torch.tensor([0, 2, 3, 4, 7, 127, 128])
    assert indexer.visible_counts(positions, 4).tolist() == [0, 0, 1, 1, 2, 32, 32]
    assert indexer.visible_counts(positions, 128).tolist() == [0, 0, 0, 0, 0, 1, 1]


def dumb_topk(row: list[float], count: int, k: int) -> list[int]:
    ranked = sorted(range(count), key=lambda w: (math.inf if math.isnan(row[w]) else -row[w], w))
    return (ranked[:k] + [-1] * k)[:k]


def rows() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(2)
    noise = torch.randn(300, generator=rng, dtype=torch.float64)
    infinite = noise.clone()
    infinite[::3] = -torch.inf
    nans = noise.clone()
    nans[7:60] = torch.nan
    nans[100] = torch.inf
    return {
        "noise": noise,
        "constant": torch.full((300,), 0.25, dtype=torch.float64),
        "zeros of both signs": torch.where(noise > 0, 0.0, -0.0).double(),
        "bf16": noise.bfloat16().double(),
        "few values": (noise * 2).round(),
        "all negative": -noise.abs() - 1e30,
        "minus infinity": infinite,
        "nothing but minus infinity": torch.full((300,), -torch.inf, dtype=torch.float64),
        "nan": nans,
        "rising": torch.arange(300.0).double(),
    }


@pytest.mark.parametrize("name", rows())
def test_topk_equals_a_sort_of_tuples(name: str) -> None:
    row = rows()[name]
    counts = torch.tensor([0, 1, 5, 16, 17, 100, 299, 300])
    for k in (1, 16, 300, 512):
        got = indexer.topk(row.expand(len(counts), -1), counts, k)
        assert got.shape == (len(counts), k) and got.dtype == torch.int64
        for ids, count in zip(got.tolist(), counts.tolist(), strict=True):
            assert ids == dumb_topk(row.tolist(), count, k)


def test_topk_of_nothing() -> None:
    assert indexer.topk(torch.empty(2, 0), torch.zeros(2, dtype=torch.long), 3).tolist() == [[-1] * 3] * 2
    assert indexer.topk(torch.empty(0, 4), torch.zeros(0, dtype=torch.long), 3).shape == (0, 3)


def test_what_is_not_visible_is_never_chosen_whatever_it_holds() -> None:
    row = torch.tensor([-5.0, -torch.inf, torch.inf, torch.nan, 9.0])
    assert indexer.topk(row, torch.tensor(2), 4).tolist() == [0, 1, -1, -1]
