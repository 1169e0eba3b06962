"""The 584-byte entry of the window and compressed caches: 448 values in FP8 under 7 scales, 64 rope values in BF16.

A page of P entries:

    P x 576 bytes   per entry 448 x E4M3 (dims 0..447), then 64 x BF16 little-endian (dims 448..511)
    P x 8 bytes     per entry 7 x UE8M0 (dims 64 g .. 64 g + 63), then one byte of padding
    padding         up to a multiple of 576 bytes

so a scale is not beside its entry. value = e4m3 2^(byte - 127). Padding is written as 0 and never read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from oracles.cache import append
from oracles.formats import fp8
from oracles.precision import expect

NOPE, ROPE, GROUP = 448, 64, 64
DATA = NOPE + 2 * ROPE
SCALES = NOPE // GROUP + 1
ENTRY = DATA + SCALES


class Entry(NamedTuple):
    """Entries of any batch: nope E4M3 bytes uint8 [..., 448], scales UE8M0 uint8 [..., 7], rope bf16 [..., 64]."""

    nope: torch.Tensor
    scales: torch.Tensor
    rope: torch.Tensor


def quantize(k: torch.Tensor) -> Entry:
    """k [..., 512], any floating dtype -> Entry. Groups of 64, amax floor 1e-4, scales to the next power of two:
    nothing clips.

    The rope part is rounded to BF16 once (to nearest even). NaN poisons its group of 64 or its rope value alone.
    """
    expect("formats.kv", k.shape[-1] == NOPE + ROPE, "last size", k.shape[-1], f"{NOPE + ROPE}")
    nope, scales = fp8.quantize_1x128(k[..., :NOPE], block=GROUP)
    return Entry(nope, scales, k[..., NOPE:].to(torch.bfloat16))


def dequantize(entry: Entry, *, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Entry -> values [..., 512]."""
    nope = fp8.dequantize_1x128(entry.nope, entry.scales, block=GROUP, dtype=dtype)
    return torch.cat((nope, entry.rope.to(dtype)), dim=-1)


def rounded(k: torch.Tensor) -> torch.Tensor:
    """k [..., 512] as the cache gives it back, in k's dtype."""
    return dequantize(quantize(k), dtype=k.dtype)


def page_bytes(entries: int) -> int:
    """Bytes of a page: 584 an entry, rounded up to a multiple of 576. 64 entries: 37440; 2 entries: 1728."""
    return -(-entries * ENTRY // DATA) * DATA


def pack_page(entry: Entry) -> torch.Tensor:
    """Entry [..., P] -> pages uint8 [..., page_bytes(P)]."""
    rope = entry.rope.contiguous().view(torch.uint8)
    data = torch.cat((entry.nope, rope), dim=-1).flatten(-2)
    scales = torch.nn.functional.pad(entry.scales, (0, 1)).flatten(-2)
    page = torch.cat((data, scales), dim=-1)
    return torch.nn.functional.pad(page, (0, page_bytes(entry.nope.shape[-2]) - page.shape[-1]))


def unpack_page(pages: torch.Tensor, entries: int) -> Entry:
    """pages uint8 [..., page_bytes(entries)] -> Entry [..., entries]."""
    want = page_bytes(entries)
    expect("formats.kv", pages.shape[-1] == want, "bytes of a page", pages.shape[-1], f"{want} for {entries} entries")
    data = pages[..., : entries * DATA].unflatten(-1, (entries, DATA))
    scales = pages[..., entries * DATA : entries * ENTRY].unflatten(-1, (entries, SCALES))
    rope = data[..., NOPE:].contiguous().view(torch.bfloat16)
    return Entry(data[..., :NOPE].contiguous(), scales[..., :-1].contiguous(), rope)


def scatter(pages: torch.Tensor, slots: torch.Tensor, entry: Entry, entries: int) -> torch.Tensor:
    """Pages uint8 [N, page_bytes] with Entry [n] at int64 slots [n] = page * entries + row, which differ; slot -1
    writes nothing.

    A new tensor; padding keeps what it held.
    """
    old = unpack_page(pages, entries)
    parts = (append(had.flatten(0, 1), new, slots).view(had.shape) for had, new in zip(old, entry, strict=True))
    at = torch.arange(pages.shape[-1], device=pages.device)
    scale = (at >= entries * DATA) & (at < entries * ENTRY) & ((at - entries * DATA) % SCALES < SCALES - 1)
    return torch.where((at < entries * DATA) | scale, pack_page(Entry(*parts)), pages)


def fetch(pages: torch.Tensor, slots: torch.Tensor, entries: int) -> Entry:
    """Entry [...] at int64 slots [...] = page * entries + row, all of them >= 0."""
    nope, scales, rope = (part.flatten(0, 1)[slots] for part in unpack_page(pages, entries))
    return Entry(nope, scales, rope)
