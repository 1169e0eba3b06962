"""The token compressor: one entry of D values for every m tokens, CSA (m = 4, windows overlap) and HCA (m = 128).

    per token t     kv_t = x_t wkv^T,   g_t = x_t wgate^T + ape[t mod m]
    HCA entry w     e_w[i] = sum_s softmax_s(g_s[i]) kv_s[i]  over the m tokens of window w, each channel i by itself
    CSA entry w     the same over 2 m slots: tokens of window w - 1 with columns 0 .. D - 1 of kv and g, tokens of
                    window w with columns D .. 2 D - 1; for w = 0 the first m slots have weight 0
    result          rope(norm(e_w), at position m w: the FIRST token of the window)

Entry w exists once token m w + m - 1 has been seen. Three equal forms: ``compress`` for a whole sequence, ``step``
and ``stream`` with what is left over as a carry, ``deferred`` from kept hidden states.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from oracles.linear import linear
from oracles.norm import rms_norm
from oracles.precision import Kind, expect, rounded
from oracles.rope import angles, rotate


class Weights(NamedTuple):
    """wkv and wgate [N, d], ape [m, N], norm [D]; N = D without overlap (HCA), 2 D with overlap (CSA)."""

    wkv: torch.Tensor
    wgate: torch.Tensor
    ape: torch.Tensor
    norm: torch.Tensor

    @property
    def ratio(self) -> int:
        """m, tokens for each entry."""
        return self.ape.shape[0]

    @property
    def overlap(self) -> bool:
        """Whether a window also sees the one before it."""
        return self.ape.shape[1] == 2 * self.norm.shape[0]

    @property
    def slots(self) -> int:
        """Tokens that one entry is made of: m, or 2 m with overlap."""
        return self.ratio * (1 + self.overlap)


class Carry(NamedTuple):
    """Tokens that wait for their window, kv and gate [..., slots, N] (ape is in the gate already).

    Without overlap token t is in slot t mod m. With overlap slots 0 .. m - 1 hold the previous window, token t is in
    slot m + t mod m. Slots that are not filled hold kv 0 and gate -inf.
    """

    kv: torch.Tensor
    gate: torch.Tensor


def project(
    x: torch.Tensor, w: Weights, positions: torch.Tensor, *, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [..., d], positions int64 [...] -> kv and gate [..., N]."""
    ape = w.ape.to(dtype)[positions % w.ratio]
    return linear(x, w.wkv, dtype=dtype), linear(x, w.wgate, dtype=dtype) + ape


def windows(kv: torch.Tensor, gate: torch.Tensor, *, overlap: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the slots of one entry [..., slots, N] the columns that count, [..., slots, D]: with overlap the first half
    of the columns for the previous window and the second half for its own.
    """
    if not overlap:
        return kv, gate
    m, d = kv.shape[-2] // 2, kv.shape[-1] // 2
    own, before = (..., slice(m, None), slice(d, None)), (..., slice(m), slice(d))
    return torch.cat((kv[before], kv[own]), dim=-2), torch.cat((gate[before], gate[own]), dim=-2)


def pool(kv: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """sum_s softmax_s(gate) kv: [..., S, D] -> [..., D]. A gate of -inf is weight 0, whatever kv holds there."""
    return (torch.softmax(gate, dim=-2) * kv.masked_fill(gate == -torch.inf, 0.0)).sum(dim=-2)


def finish(
    e: torch.Tensor,
    norm: torch.Tensor,
    first: torch.Tensor,
    freqs: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
    storage: torch.dtype | None = None,
) -> torch.Tensor:
    """Entries from pooled values: e [..., D], norm [D], first int64 [...] = m w, freqs [r / 2] -> [..., D].

    simulated: e and the entry are rounded to ``storage`` (the dtype of x; e's own if none is given).
    """
    e = rounded(e, storage or e.dtype, kind)
    cos, sin = angles(first, freqs, dtype=dtype)
    return rounded(rotate(rms_norm(e, norm, eps=eps, dtype=dtype), cos, sin, dtype=dtype), storage or e.dtype, kind)


def compress(
    x: torch.Tensor,
    w: Weights,
    freqs: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """All entries of a sequence from position 0: x [..., T, d] -> [..., T // m, D]. An unfinished window has none."""
    return stream(x, 0, empty_carry(w, x.shape[:-2], dtype=dtype), w, freqs, eps=eps, dtype=dtype, kind=kind)[0]


def deferred(
    x: torch.Tensor,
    w: Weights,
    window: torch.Tensor,
    freqs: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> torch.Tensor:
    """Entries from kept hidden states, projected only now: x [..., slots, d], window int64 [...] -> [..., D].

    With overlap the previous window comes first in x. The same as projecting each token when it comes. Window 0 has no
    previous one: what x holds there has weight 0.
    """
    expect("compressor.deferred", x.shape[-2] == w.slots, "x.shape", tuple(x.shape), f"[..., {w.slots}, d]")
    slots = torch.arange(w.slots, device=x.device)
    kv, gate = project(x, w, slots.expand(x.shape[:-1]), dtype=dtype)
    kv, gate = windows(kv, gate, overlap=w.overlap)
    if w.overlap:
        gate = gate.masked_fill(((window == 0)[..., None] & (slots < w.ratio))[..., None], -torch.inf)
    return finish(pool(kv, gate), w.norm, window * w.ratio, freqs, eps=eps, dtype=dtype, kind=kind, storage=x.dtype)


def empty_carry(w: Weights, batch: tuple[int, ...] = (), *, dtype: torch.dtype = torch.float64) -> Carry:
    """The carry of sequences without a token: [*batch, slots, N]."""
    kv = w.wkv.new_zeros((*batch, w.slots, w.ape.shape[1]), dtype=dtype)
    return Carry(kv, torch.full_like(kv, -torch.inf))


def step(
    x: torch.Tensor,
    positions: torch.Tensor,
    carry: Carry,
    w: Weights,
    freqs: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> tuple[torch.Tensor, torch.Tensor, Carry]:
    """One token for each sequence, at positions that may differ.

    x [..., d], positions int64 [...], carry [..., slots, N] -> entry [..., D] (zeros where none is due), emitted bool
    [...] = (position + 1) mod m == 0, the new carry. The entry's index is position // m. A first window ignores what
    the carry holds of a previous one.
    """
    m, slots = w.ratio, torch.arange(w.slots, device=x.device)
    kv, gate = project(x, w, positions, dtype=dtype)
    here = (slots == (positions % m + w.slots - m)[..., None])[..., None]
    stale = ((positions < m)[..., None] & (slots < w.slots - m))[..., None]
    kv = torch.where(here, kv[..., None, :], carry.kv.to(dtype)).masked_fill(stale, 0.0)
    gate = torch.where(here, gate[..., None, :], carry.gate.to(dtype)).masked_fill(stale, -torch.inf)

    emitted = (positions + 1) % m == 0
    pooled = pool(*windows(kv, gate, overlap=w.overlap))
    entry = finish(pooled, w.norm, positions + 1 - m, freqs, eps=eps, dtype=dtype, kind=kind, storage=x.dtype)

    due, blank = emitted[..., None, None], empty_carry(w, positions.shape, dtype=dtype)
    shifted = (
        torch.cat((old[..., m:, :], new[..., :m, :]), dim=-2) for old, new in zip((kv, gate), blank, strict=True)
    )
    after = Carry(*(torch.where(due, new, old) for new, old in zip(shifted, (kv, gate), strict=True)))
    return entry.masked_fill(~emitted[..., None], 0.0), emitted, after


def stream(
    x: torch.Tensor,
    start: int,
    carry: Carry,
    w: Weights,
    freqs: torch.Tensor,
    *,
    eps: float = 1e-6,
    dtype: torch.dtype = torch.float64,
    kind: Kind = "ideal",
) -> tuple[torch.Tensor, Carry]:
    """A chunk of T >= 0 tokens from position ``start`` on, which the host knows.

    x [..., T, d], carry [..., slots, N] -> entries that it finishes and the new carry. Entries [..., (start + T) // m
    - start // m, D], the first one with index start // m. Any cut of a sequence gives the same entries. A first
    window ignores what the carry holds of a previous one.
    """
    m, extra, kept = w.ratio, w.slots - w.ratio, w.slots - w.ratio + start % w.ratio
    blank = empty_carry(w, x.shape[:-2], dtype=dtype)
    before = [
        torch.cat((none[..., :extra, :], old[..., extra:, :].to(dtype)), dim=-2) if start < m else old.to(dtype)
        for none, old in zip(blank, carry, strict=True)
    ]
    new = project(x, w, torch.arange(start, start + x.shape[-2], device=x.device), dtype=dtype)
    lines = [torch.cat((old[..., :kept, :], part), dim=-2) for old, part in zip(before, new, strict=True)]

    count = (kept + x.shape[-2] - extra) // m
    # Window w starts at slot w m of the line and, with overlap, the one before it is part of it.
    at = torch.arange(count, device=x.device)[:, None] * m + torch.arange(w.slots, device=x.device)
    pooled = pool(*windows(*(line[..., at, :] for line in lines), overlap=w.overlap))
    first = (start // m + torch.arange(count, device=x.device)) * m
    entries = finish(pooled, w.norm, first, freqs, eps=eps, dtype=dtype, kind=kind, storage=x.dtype)

    left = [line[..., count * m :, :] for line in lines]
    after = [torch.cat((part, none[..., part.shape[-2] :, :]), dim=-2) for part, none in zip(left, blank, strict=True)]
    return entries, Carry(*after)
