"""Blocks: taken, shared, copied before writing, given back; none is ever lost or owned twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from model.cache.blocks import Blocks


def test_only_what_is_new_is_taken():
    blocks = Blocks(4, 128)
    table = blocks.reserve([], 0, 129).table
    assert len(table) == 2 and blocks.free == 2
    assert blocks.needed(table, 129, 256) == 0 and blocks.needed(table, 129, 257) == 1
    assert blocks.reserve(table, 129, 129).table == table
    blocks.release(table)
    assert blocks.free == 4


def test_a_shared_block_is_copied_by_who_writes_first():
    blocks = Blocks(5, 128)
    first = blocks.reserve([], 0, 200).table
    second = blocks.share(first)
    assert blocks.needed(second, 200, 201) == 1
    reserved = blocks.reserve(second, 200, 201)
    assert reserved.copies == [(first[1], reserved.table[1])] and reserved.table[0] == first[0]
    assert blocks.needed(first, 200, 201) == 0 and blocks.reserve(first, 200, 201).copies == []
    blocks.release(first)
    blocks.release(reserved.table)
    assert blocks.free == 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["open", "grow", "fork", "cut", "free"]), st.integers(0, 400)), max_size=40))
def test_no_block_is_lost_or_written_by_two(actions: list[tuple[str, int]]):
    blocks, tables = Blocks(12, 128), list[tuple[list[int], int]]()
    for action, n in actions:
        i = n % len(tables) if tables else 0
        if action == "open":
            tables.append(([], 0))
        elif action == "grow" and tables and blocks.needed(*tables[i], tables[i][1] + n) <= blocks.free:
            table, length = tables[i]
            tables[i] = blocks.reserve(table, length, length + n).table, length + n
            written = tables[i][0][length // 128 :] if n else []
            others = {b for j, (t, _) in enumerate(tables) if j != i for b in t}
            assert not others & set(written)
        elif action == "fork" and tables:
            tables.append((blocks.share(tables[i][0]), tables[i][1]))
        elif action == "cut" and tables:
            table, length = tables[i]
            kept = max(0, length - n)
            blocks.release(table[-(-kept // 128) :])
            tables[i] = table[: -(-kept // 128)], kept
        elif action == "free" and tables:
            blocks.release(tables.pop(i)[0])
        assert blocks.free == 12 - len({b for t, _ in tables for b in t})
