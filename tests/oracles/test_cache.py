"""Slots against a cache that is filled token by token in Python."""

from __future__ import annotations

import pytest
import torch

from oracles import cache


@pytest.mark.parametrize("window", [4, 128])
def test_the_ring_holds_the_last_positions(window: int) -> None:
    ring = [-1] * window
    for p in range(3 * window + 1):
        assert cache.ring_positions(torch.tensor(p), window).tolist() == ring
        slot = cache.ring_slots(torch.tensor(p), window).item()
        ring[int(slot)] = p
    lengths = torch.tensor([0, 1, window, 2 * window + 1])
    batched = cache.ring_positions(lengths, window)
    assert torch.equal(batched, torch.stack([cache.ring_positions(n, window) for n in lengths]))


@pytest.mark.parametrize("ratio", [4, 128])
def test_an_entry_has_a_slot_at_its_last_token_only(ratio: int) -> None:
    want = [p // ratio if p % ratio == ratio - 1 else -1 for p in range(3 * ratio)]
    assert cache.compressed_slots(torch.arange(3 * ratio), ratio).tolist() == want


def test_slots_go_through_the_page_table_of_their_sequence() -> None:
    table = torch.tensor([[7, 2, 5], [0, 9, 1]])
    logical = torch.tensor([[0, 3, 4, -1], [11, 5, -1, 1]])
    assert cache.paged_slots(logical, table, 4).tolist() == [[28, 31, 8, -1], [7, 37, -1, 1]]


def test_append_writes_its_slots_and_nothing_else() -> None:
    rows, new = torch.zeros(5, 2), torch.arange(8.0).view(4, 2)
    got = cache.append(rows, new, torch.tensor([3, -1, 0, -1]))
    assert got.tolist() == [[4, 5], [0, 0], [0, 0], [0, 1], [0, 0]] and not bool(rows.any())
    assert cache.append(rows[:0], new[:1], torch.tensor([-1])).shape == (0, 2)
    assert torch.equal(cache.append(rows, new[:0], torch.empty(0, dtype=torch.long)), rows)
    with pytest.raises(ValueError, match=r"oracles\.cache\.append: rows of new=4; allowed: 3 slots"):
        cache.append(rows, new, torch.tensor([0, 1, 2]))
