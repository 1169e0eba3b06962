"""Attention over window and compressed entries against one query, one head, one key at a time."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import attention, fmha
from oracles.attention import Part

T, HEADS, C = 5, 3, 8


def example(
    window: int = 7, entries: int = 4, batch: tuple[int, ...] = ()
) -> tuple[torch.Tensor, list[Part], torch.Tensor]:
    rng = torch.Generator().manual_seed(window)
    q = torch.randn(*batch, T, HEADS, C, generator=rng, dtype=torch.float64)
    parts = [
        (torch.randn(*batch, s, C, generator=rng, dtype=torch.float64), torch.rand(*batch, T, s, generator=rng) < 0.6)
        for s in (window, entries)
    ]
    return q, parts, torch.randn(HEADS, generator=rng, dtype=torch.float64)


def dumb(
    q: torch.Tensor, parts: list[Part], sink: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.zeros(q.shape).double(), torch.zeros(q.shape[:-1]).double()
    for t in range(T):
        for h in range(HEADS):
            rows = [
                kv[s] if kv.ndim == 2 else kv[t, s] for kv, seen in parts for s in range(kv.shape[-2]) if seen[t, s]
            ]
            logits = [scale * sum(a * b for a, b in zip(q[t, h].tolist(), row.tolist(), strict=True)) for row in rows]
            total = sum(math.exp(v) for v in logits)
            lse[t, h] = math.log(total) if rows else -math.inf
            total += math.exp(sink[h]) if sink is not None else 0.0
            for row, v in zip(rows, logits, strict=True):
                out[t, h] += math.exp(v) / total * row
    return out, lse


@pytest.mark.parametrize("with_sink", [True, False])
def test_equals_one_key_at_a_time(with_sink: bool) -> None:
    q, parts, sink = example()
    got = attention.attention(q, parts, sink if with_sink else None, scale=0.3)
    for mine, want in zip(got, dumb(q, parts, sink if with_sink else None, 0.3), strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-13, atol=1e-13)


def test_each_query_with_its_own_keys() -> None:
    q, parts, sink = example()
    rng = torch.Generator().manual_seed(9)
    own = torch.randn(T, 6, C, generator=rng, dtype=torch.float64), torch.rand(T, 6, generator=rng) < 0.5
    mixed = [parts[0], own]
    for mine, want in zip(attention.attention(q, mixed, sink, scale=0.3), dumb(q, mixed, sink, 0.3), strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-13, atol=1e-13)


def test_one_softmax_over_all_parts_and_a_batch_of_sequences() -> None:
    q, parts, sink = example(batch=(2,))
    joined = [(torch.cat([kv for kv, _ in parts], dim=-2), torch.cat([seen for _, seen in parts], dim=-1))]
    apart = attention.attention(q, parts, sink, scale=0.3)
    for mine, want in zip(apart, attention.attention(q, joined, sink, scale=0.3), strict=True):
        torch.testing.assert_close(mine, want, rtol=1e-13, atol=1e-13)
    alone = attention.attention(q[1], [(kv[1], seen[1]) for kv, seen in parts], sink, scale=0.3)
    torch.testing.assert_close(apart[0][1], alone[0], rtol=1e-13, atol=1e-13)


def test_without_a_sink_it_is_the_general_form_with_one_key_head() -> None:
    q, parts, _ = example()
    kv = parts[0][0]
    out, lse = attention.attention(q, [(kv, torch.ones(T, 7, dtype=torch.bool))], None, scale=0.3)
    want, want_lse = fmha.attention(q[None], kv[None, :, None], kv[None, :, None], scale=0.3)
    torch.testing.assert_close(out, want[0], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, want_lse[0].mT, rtol=1e-13, atol=1e-13)


def test_the_sink_is_a_factor_on_the_result_without_it() -> None:
    q, parts, sink = example()
    out, lse = attention.attention(q, parts, None, scale=0.3)
    with_sink, same = attention.attention(q, parts, sink, scale=0.3)
    assert torch.equal(lse, same)
    torch.testing.assert_close(with_sink, out * torch.sigmoid(lse - sink)[..., None], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_invisible_may_hold_anything(bad: float) -> None:
    q, parts, sink = example()
    (kv, seen), rest = parts[0], parts[1]
    seen = seen.clone()
    seen[1:, 2] = False
    seen[0, 2] = True
    want, _ = attention.attention(q, [(kv, seen), rest], sink, scale=0.3)
    dirty = kv.clone()
    dirty[2, 3] = bad
    got, lse = attention.attention(q, [(dirty, seen), rest], sink, scale=0.3)
    assert torch.equal(got[1:], want[1:]) and bool(got[0].isnan().all()) and bool(lse[0].isnan().all())


@pytest.mark.parametrize("sink", [None, 0.0, -torch.inf, 3000.0])
def test_a_query_that_sees_nothing(sink: float | None) -> None:
    q, parts, _ = example()
    hidden = [(kv, seen & (torch.arange(T) != 2)[:, None]) for kv, seen in parts]
    out, lse = attention.attention(q, hidden, None if sink is None else torch.full((HEADS,), sink), scale=0.3)
    assert not bool(out[2].any()) and bool(lse[2].isneginf().all()) and bool(out.isfinite().all())


def test_no_keys_at_all_and_no_queries() -> None:
    q, parts, sink = example()
    out, lse = attention.attention(q, [(parts[0][0][:0], torch.ones(T, 0, dtype=torch.bool))], sink, scale=1.0)
    assert not bool(out.any()) and bool(lse.isneginf().all())
    empty = attention.attention(q[:0], [(kv, seen[:0]) for kv, seen in parts], sink, scale=1.0)
    assert empty[0].shape == (0, HEADS, C) and empty[1].shape == (0, HEADS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("logit", "sink", "want"), [(6e4, 0.0, 1.5), (-6e4, -6e4, 1.2), (-6e4, 0.0, 0.0), (0.0, 6e4, 0.0)]
)
def test_logits_and_sinks_of_sixty_thousand(logit: float, sink: float, want: float, dtype: torch.dtype) -> None:
    """Four keys of one logit with the last value 0 .. 3: 1.5 x 4 / (4 + exp(sink - logit))."""
    kv = torch.full((4, 2), 1.0, dtype=dtype)
    kv[:, 1] = torch.arange(4.0)
    q = torch.tensor([[[logit, 0.0]]], dtype=dtype)
    seen = torch.ones(1, 4, dtype=torch.bool)
    out, lse = attention.attention(q, [(kv, seen)], torch.tensor([sink]), scale=1.0, dtype=dtype)
    assert out[0, 0, 1].item() == pytest.approx(want, rel=1e-6, abs=1e-30)
    assert lse.item() == pytest.approx(logit + math.log(4.0), rel=1e-6)


def test_simulated_rounds_p_and_the_output() -> None:
    q, parts, sink = example()
    q = q.bfloat16()
    got, lse = attention.attention(q, parts, sink, scale=0.3, kind="simulated")
    logits = torch.cat([q.double() @ kv.mT[None] * 0.3 for kv, _ in parts], dim=-1)
    seen = torch.cat([seen for _, seen in parts], dim=-1)[:, None]
    logits = logits.masked_fill(~seen, -torch.inf)
    p = torch.exp(logits - logits.amax(-1, keepdim=True))
    total = p.sum(-1) + torch.exp(sink - logits.amax(-1))
    want = (p.bfloat16().double() @ torch.cat([kv for kv, _ in parts]) / total[..., None]).bfloat16().double()
    torch.testing.assert_close(got, want, rtol=2.0**-8, atol=0)
    assert torch.equal(lse, attention.attention(q, parts, sink, scale=0.3)[1]) and (got == want).double().mean() > 0.98


def test_gather_takes_each_query_its_rows_and_masks_by_id_and_by_count() -> None:
    pool = torch.arange(12.0).view(2, 3, 2)
    ids = torch.tensor([[[2, -1, 0, 7]], [[1, 1, 2, 0]]])
    kv, seen = attention.gather(pool, ids)
    assert seen.tolist() == [[[True, False, True, False]], [[True] * 4]]
    assert kv[0, 0, 0].tolist() == [4, 5] and kv[0, 0, 2].tolist() == [0, 1] and kv[1, 0, 2].tolist() == [10, 11]
    _, few = attention.gather(pool, ids, torch.tensor([[1], [3]]))
    assert few.tolist() == [[[True, False, False, False]], [[True, True, True, False]]]
    kv, seen = attention.gather(pool[0, :0], torch.zeros(2, 3, dtype=torch.long))
    assert kv.shape == (2, 3, 2) and not bool(seen.any())


def test_a_list_whose_first_lanes_are_empty_and_duplicates_behind_the_count() -> None:
    q, parts, sink = example(window=20)
    pool = parts[0][0]
    listed = torch.tensor([-1] * 16 + [3, 5, 19, 0]).expand(T, -1)
    got, _ = attention.attention(q, [attention.gather(pool, listed)], sink, scale=0.3)
    some = pool[[3, 5, 19, 0]], torch.ones(T, 4, dtype=torch.bool)
    torch.testing.assert_close(got, attention.attention(q, [some], sink, scale=0.3)[0], rtol=1e-13, atol=1e-13)
    stale = torch.tensor([3, 5, 19, 0, 7, 7, 8]).expand(T, -1)
    counted = attention.gather(pool, stale, torch.full((T,), 4))
    torch.testing.assert_close(attention.attention(q, [counted], sink, scale=0.3)[0], got, rtol=1e-13, atol=1e-13)


def test_the_window_is_128_positions_with_the_query_itself() -> None:
    seen = attention.window_visible(torch.tensor([0, 127, 128, 300]), torch.arange(301))
    assert [row.nonzero().flatten().tolist() for row in seen] == [
        [0],
        list(range(128)),
        list(range(1, 129)),
        list(range(173, 301)),
    ]
    ring = torch.tensor([4, 5, -1, 3])
    assert attention.window_visible(torch.tensor([5]), ring, window=2).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("ratio", [4, 128])
def test_an_entry_is_visible_from_its_last_token_on(ratio: int) -> None:
    positions = torch.arange(3 * ratio)
    seen = attention.compressed_visible(positions, 3, ratio)
    for w in range(3):
        assert seen[:, w].nonzero().flatten().tolist() == list(range(ratio * w + ratio - 1, 3 * ratio))


def test_selected_ids_as_a_mask() -> None:
    got = attention.selected_visible(torch.tensor([[2, 0, -1], [-1, -1, -1]]), 4)
    assert got.tolist() == [[True, False, True, False], [False] * 4]
    assert attention.selected_visible(torch.tensor([[-1, -1]]), 0).shape == (1, 0)


def test_keys_of_another_width_are_refused() -> None:
    q, parts, sink = example()
    with pytest.raises(ValueError, match=r"oracles\.attention: kv\.shape=\(7, 5\); allowed: \[\.\.\., 8\]"):
        attention.attention(q, [(parts[0][0][:, :5], parts[0][1])], sink, scale=1.0)
