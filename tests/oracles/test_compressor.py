"""The compressor in four forms that must agree: loops, whole sequence, token by token, and from kept hidden states."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from oracles import compressor
from oracles.compressor import Carry, Weights, compress, deferred, empty_carry, step, stream
from oracles.rope import Yarn, angles, frequencies, rotate

HIDDEN, DIM = 6, 8
FREQS = frequencies(4, theta=160000.0, yarn=Yarn())
KINDS = [(4, True), (4, False), (16, False), (3, True), (128, False)]


def weights(m: int, overlap: bool) -> Weights:
    rng = torch.Generator().manual_seed(m)
    n = DIM * (1 + overlap)
    shapes = ((n, HIDDEN), (n, HIDDEN), (m, n), (DIM,))
    return Weights(*(torch.randn(s, generator=rng, dtype=torch.float64) for s in shapes))


def tokens(count: int, batch: tuple[int, ...] = ()) -> torch.Tensor:
    rng = torch.Generator().manual_seed(count)
    return torch.randn(*batch, count, HIDDEN, generator=rng, dtype=torch.float64)


def dumb(x: torch.Tensor, w: Weights, m: int, overlap: bool) -> torch.Tensor:
    """Channel by channel: which tokens, with which columns, softmax, sum, then norm and rotation."""
    entries = []
    for e in range(len(x) // m):
        pooled = []
        for i in range(DIM):
            slots = [(t, i + (DIM if overlap else 0)) for t in range(m * e, m * e + m)]
            if overlap and e > 0:
                slots += [(t, i) for t in range(m * e - m, m * e)]
            gates = [float(x[t] @ w.wgate[col]) + w.ape[t % m, col].item() for t, col in slots]
            values = [float(x[t] @ w.wkv[col]) for t, col in slots]
            p = [math.exp(g - max(gates)) for g in gates]
            pooled.append(sum(a * b for a, b in zip(p, values, strict=True)) / sum(p))
        root = math.sqrt(sum(v * v for v in pooled) / DIM + 1e-6)
        row = torch.tensor([v / root * w.norm[i].item() for i, v in enumerate(pooled)], dtype=torch.float64)
        entries.append(rotate(row, *angles(torch.tensor(m * e), FREQS)))
    return torch.stack(entries) if entries else x.new_zeros(0, DIM)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("m", "overlap"), KINDS)
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_sequence_equals_loops(m: int, overlap: bool, extra: int) -> None:
    x, w = tokens(2 * m + extra), weights(m, overlap)
    assert (w.ratio, w.overlap, w.slots) == (m, overlap, m * (1 + overlap))
    got = compress(x, w, FREQS)
    assert got.shape == ((2 * m + extra) // m, DIM)
    close(got, dumb(x, w, m, overlap))


@pytest.mark.parametrize(("m", "overlap"), KINDS[:4])
def test_token_by_token(m: int, overlap: bool) -> None:
    x, w = tokens(3 * m + 2), weights(m, overlap)
    carry, entries = empty_carry(w), []
    for t in range(len(x)):
        entry, emitted, carry = step(x[t], torch.tensor(t), carry, w, FREQS)
        assert bool(emitted) == ((t + 1) % m == 0)
        if emitted:
            entries.append(entry)
        else:
            assert torch.equal(entry, torch.zeros(DIM, dtype=torch.float64))
        chunk = stream(x[: t + 1], 0, empty_carry(w), w, FREQS)[1]
        for got, want in zip(carry, chunk, strict=True):
            close(got, want)
    close(torch.stack(entries), dumb(x, w, m, overlap))


@pytest.mark.parametrize("cuts", [[1, 2, 3, 5, 1], [4, 4, 4], [7, 0, 5], [12], [3, 9]])
@pytest.mark.parametrize("overlap", [True, False])
def test_any_cut_of_a_sequence_gives_the_same_entries(cuts: list[int], overlap: bool) -> None:
    x, w = tokens(12, (2,)), weights(4, overlap)
    carry, entries, start = empty_carry(w, (2,)), [], 0
    for size in cuts:
        got, carry = stream(x[:, start : start + size], start, carry, w, FREQS)
        assert got.shape == (2, (start + size) // 4 - start // 4, DIM)
        entries.append(got)
        start += size
    close(torch.cat(entries, dim=1), compress(x, w, FREQS))
    for got, want in zip(carry, stream(x, 0, empty_carry(w, (2,)), w, FREQS)[1], strict=True):
        close(got, want)


def test_sequences_of_different_lengths_in_one_batch() -> None:
    w, starts = weights(4, True), [0, 3, 4, 7, 11]
    x = tokens(12, (5,))
    carries = [stream(x[i, :n], 0, empty_carry(w), w, FREQS)[1] for i, n in enumerate(starts)]
    carry = Carry(*(torch.stack(parts) for parts in zip(*carries, strict=True)))
    entry, emitted, after = step(
        torch.stack([x[i, n] for i, n in enumerate(starts)]), torch.tensor(starts), carry, w, FREQS
    )
    assert emitted.tolist() == [False, True, False, True, True]
    for i, n in enumerate(starts):
        alone = step(x[i, n], torch.tensor(n), carries[i], w, FREQS)
        close(entry[i], alone[0])
        close(after.kv[i], alone[2].kv)
        assert torch.equal(after.gate[i].isinf(), alone[2].gate.isinf())


@pytest.mark.parametrize(("m", "overlap"), [(4, True), (4, False), (16, False)])
def test_kept_hidden_states_give_the_same_entries(m: int, overlap: bool) -> None:
    x, w = tokens(3 * m), weights(m, overlap)
    garbage = torch.full((m, HIDDEN), torch.nan, dtype=torch.float64)
    line = torch.cat((garbage, x)) if overlap else x
    kept = torch.stack([line[m * e : m * e + w.slots] for e in range(3)])
    close(deferred(kept, w, torch.arange(3), FREQS), compress(x, w, FREQS))


def test_a_running_softmax_gives_the_same_pool() -> None:
    rng = torch.Generator().manual_seed(5)
    kv, gate = torch.randn(2, 16, 3, generator=rng, dtype=torch.float64)
    for i in range(3):
        top, total, weighted = -math.inf, 0.0, 0.0
        for s in range(16):
            higher = max(top, gate[s, i].item())
            old, new = math.exp(top - higher), math.exp(gate[s, i].item() - higher)
            total, weighted, top = total * old + new, weighted * old + new * kv[s, i].item(), higher
        assert compressor.pool(kv, gate)[i].item() == pytest.approx(weighted / total, rel=1e-13)


@pytest.mark.parametrize("form", ["step", "stream"])
def test_a_first_window_ignores_a_carry_that_was_never_cleared(form: str) -> None:
    x, w = tokens(8), weights(4, True)
    stale = Carry(*(torch.full_like(part, torch.nan) for part in empty_carry(w)))
    if form == "stream":
        close(stream(x, 0, stale, w, FREQS)[0], compress(x, w, FREQS))
        return
    entries = []
    for t in range(8):
        entry, emitted, stale = step(x[t], torch.tensor(t), stale, w, FREQS)
        entries += [entry] if emitted else []
    close(torch.stack(entries), compress(x, w, FREQS))


def test_gates_that_would_overflow() -> None:
    kv = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    gate = torch.tensor([[-torch.inf], [5000.0], [5000.0 - math.log(3)]], dtype=torch.float64)
    assert compressor.pool(kv, gate).item() == pytest.approx((2 * 3 + 3) / 4)


def test_the_entry_is_rotated_at_the_first_token_of_its_window() -> None:
    x, w = tokens(12), weights(4, True)
    at = angles(torch.tensor([0, 4, 8]), FREQS)
    rows = compress(x, w, torch.zeros(2))
    close(compress(x, w, FREQS), rotate(rows, *at))


def test_simulated_rounds_the_pooled_value_and_the_entry() -> None:
    x, w = tokens(160).bfloat16(), weights(4, False)
    kv, gate = (part.unflatten(0, (40, 4)) for part in compressor.project(x, w, torch.arange(160)))
    pooled = compressor.pool(kv, gate).bfloat16().double()
    want = compressor.finish(pooled, w.norm, 4 * torch.arange(40), FREQS).bfloat16().double()
    assert torch.equal(compress(x, w, FREQS, kind="simulated"), want)
    close(compress(x, w, FREQS), dumb(x.double(), w, 4, False))


def test_all_forms_round_alike() -> None:
    x, w = tokens(8).bfloat16(), weights(4, True)
    options: dict[str, Any] = {"kind": "simulated"}
    want = compress(x, w, FREQS, **options)
    carry = empty_carry(w)
    for t in range(8):
        entry, _, carry = step(x[t], torch.tensor(t), carry, w, FREQS, **options)
    assert torch.equal(entry, want[1])
    assert torch.equal(deferred(x, w, torch.tensor(1), FREQS, **options), want[1])


def test_no_tokens() -> None:
    w = weights(4, True)
    entries, carry = stream(tokens(0), 0, empty_carry(w), w, FREQS)
    assert entries.shape == (0, DIM) and bool(carry.gate.isneginf().all()) and not bool(carry.kv.any())


def test_a_wrong_number_of_hidden_states_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"oracles\.compressor\.deferred: x\.shape=\(4, 6\); allowed: \[\.\.\., 8, d\]"
    ):
        deferred(tokens(4), weights(4, True), torch.tensor(0), FREQS)
