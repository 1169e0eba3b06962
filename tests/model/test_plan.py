"""Plans: rows and windows against a dumb count over positions, and one copy to refill them."""

from __future__ import annotations

import pytest
import torch

from model.cache import Cache
from model.config import Config
from model.plan import Plan, plan


def made(
    config: Config, starts: list[int], counts: list[int], static: bool = False, rewind: int = 2
) -> tuple[Cache, Plan]:
    """A plan of `counts` tokens after `starts`."""
    cache = Cache(config, sequences=len(starts), tokens=4096, block_tokens=128, rewind=rewind)
    sequences = [cache.open() for _ in starts][::-1]
    cache.reserve(sequences, starts)
    cache.advance(sequences, starts)
    cache.reserve(sequences, counts)
    return cache, plan(cache, sequences, counts, static=static)


@pytest.mark.parametrize(
    ("starts", "counts"),
    [
        ([0], [1]),
        ([3], [1]),
        ([127], [1]),
        ([0], [300]),
        ([125, 2, 250], [7, 7, 1]),
        ([4, 129], [260, 3]),
        ([254], [4]),
    ],
)
def test_windows_are_made_of_the_right_tokens(starts: list[int], counts: list[int], config: Config):
    """Follow every slot of every completed window back to a position: it must be the one that belongs there."""
    cache, step = made(config, starts, counts)
    rows = [(s, p) for s, a, n in zip(step.sequences, starts, counts, strict=True) for p in range(a, a + n)]
    for m, emission in ((m, step.emissions.get(m)) for m in (4, 128)):
        due = [(s, p // m) for s, p in rows if (p + 1) % m == 0]
        assert (emission is None) == (not due)
        if emission is None:
            continue
        ring, tail = cache.carry_ring[m], emission.tail.tolist()
        sources = [rows[i] for i in emission.fresh.tolist()]
        for (s, w), slots, first, row in zip(
            due, emission.slots.tolist(), emission.first.tolist(), emission.rows.tolist(), strict=True
        ):
            assert first == m * w
            block, per_block = cache.table(s)[m * w // 128], 128 // m
            assert row == block * per_block + w % per_block
            before = m if m == 4 else 0
            for wanted, slot in zip(range(m * w - before, m * w + m), slots, strict=True):
                if wanted < 0:
                    assert slot == -1
                elif slot < len(tail):
                    assert (
                        tail[slot] == s * ring + wanted % ring
                        and wanted < dict(zip(step.sequences, starts, strict=True))[s]
                    )
                else:
                    assert sources[slot - len(tail)] == (s, wanted)
                if slot >= 0:
                    assert emission.positions[slot] == wanted


def test_rings_keep_the_last_positions_once(config: Config):
    cache, step = made(config, [5, 200], [400, 3])
    ring = cache.window_ring
    kept = [(0, p) for p in range(405 - ring, 405)] + [(1, p) for p in range(200, 203)]
    assert step.window.keep is not None
    wanted = [step.sequences[i] * ring + p % ring for i, p in kept]
    assert step.window.rows.tolist() == wanted and len(set(wanted)) == len(wanted)
    assert step.window.keep.tolist() == [*range(400 - ring, 400), 400, 401, 402]
    assert made(config, [5], [ring])[1].window.keep is None


def test_groups_are_runs_of_equal_counts(config: Config):
    _, step = made(config, [0, 9, 130, 7], [2, 2, 1, 2])
    assert [(g.start, g.batch, g.tokens) for g in step.groups] == [(0, 2, 2), (4, 1, 1), (5, 1, 2)]
    assert step.groups[0].positions.tolist() == [[0, 1], [9, 10]]
    assert step.groups[1].key_positions[0].tolist() == list(range(3, 131))
    assert step.groups[0].key_positions[0, :127].max() < 0
    assert step.last.tolist() == [1, 3, 4, 6] and step.positions.tolist() == [0, 1, 9, 10, 130, 7, 8]


def test_refilling_takes_one_copy_and_the_same_shape(config: Config):
    _, first = made(config, [129], [1], static=True)
    _, second = made(config, [141], [1], static=True)
    _, other = made(config, [131], [1], static=True)
    held = first.groups[0].prior
    first.refill(second)
    assert torch.equal(held, second.groups[0].prior) and first.positions.tolist() == [141]
    with pytest.raises(ValueError, match="plan: shape"):
        first.refill(other)


def test_static_tables_share_a_shape_between_lengths(config: Config):
    sizes = {made(config, [n], [1], static=True)[1].groups[0].blocks.shape[1] for n in range(1, 1100, 50)}
    assert sizes == {1, 2, 4, 8, 16}
