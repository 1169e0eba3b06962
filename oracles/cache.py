"""Where the rows of the caches go: ring slots of the window, slots of compressed entries, and the append itself."""

from __future__ import annotations

import torch

from oracles.precision import expect


def ring_slots(positions: torch.Tensor, window: int = 128) -> torch.Tensor:
    """Slot of the window ring for int64 positions [...]: p mod window."""
    return positions % window


def ring_positions(length: torch.Tensor, window: int = 128) -> torch.Tensor:
    """Which position each ring slot holds after ``length`` tokens (int64 [...]) -> [..., window]; -1 = still empty.

    The largest p < length with p mod window = slot.
    """
    slots = torch.arange(window, device=length.device)
    last = length[..., None] - 1
    return (last - (last - slots) % window).clamp(min=-1)


def compressed_slots(positions: torch.Tensor, ratio: int) -> torch.Tensor:
    """Index p // ratio of the entry that position p finishes, -1 where it finishes none; int64 [...]."""
    return torch.where((positions + 1) % ratio == 0, positions // ratio, -1)


def paged_slots(logical: torch.Tensor, table: torch.Tensor, per_page: int) -> torch.Tensor:
    """Physical slot page x per_page + row of logical indices [..., n] (-1 stays -1) through page tables int64 [...,
    pages].
    """
    page = table.gather(-1, logical.clamp(min=0) // per_page)
    return torch.where(logical < 0, -1, page * per_page + logical % per_page)


def append(rows: torch.Tensor, new: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """rows [P, ...] with new [n, ...] at int64 slots [n], which differ; slot -1 writes nothing. A new tensor."""
    expect("cache.append", new.shape[0] == slots.shape[0], "rows of new", new.shape[0], f"{slots.shape[0]} slots")
    spare = torch.cat((rows, rows[:1] if len(rows) else new.new_zeros(1, *new.shape[1:])))
    return spare.index_copy(0, torch.where(slots < 0, len(rows), slots), new)[:-1]
