"""The 584-byte entry: byte by byte, with struct."""

from __future__ import annotations

import struct

import pytest
import torch

from oracles.formats import e4m3, kv
from tests.oracles.formats.hostile import rows


def example(n: int = 5) -> torch.Tensor:
    return torch.cat([rows(64, count=n - 1) for _ in range(8)], dim=-1)[:n]


def test_values_one_group_at_a_time() -> None:
    k = example(10)
    entry = kv.quantize(k)
    assert (entry.nope.shape, entry.scales.shape, entry.rope.shape) == ((10, 448), (10, 7), (10, 64))
    got = kv.dequantize(entry)
    for r in range(10):
        for g in range(7):
            part = k[r, 64 * g : 64 * g + 64].double()
            s = 2.0 ** torch.ceil(torch.log2(part.abs().max().clamp(min=1e-4) / 448)).item()
            assert torch.equal(got[r, 64 * g : 64 * g + 64], e4m3.decode(e4m3.encode(part / s)) * s)
    assert torch.equal(got[:, 448:], k[:, 448:].bfloat16().double())
    assert torch.equal(kv.rounded(k).double(), got) and kv.rounded(k.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("entries", "size"), [(64, 37440), (2, 1728), (1, 1152), (72, 42048)])
def test_page_sizes(entries: int, size: int) -> None:
    assert kv.page_bytes(entries) == size and size % 576 == 0 and size >= entries * kv.ENTRY == entries * 584


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_the_bytes_of_a_page(entries: int) -> None:
    entry = kv.quantize(example(entries))
    page = bytes(kv.pack_page(entry).tolist())
    want = bytearray(kv.page_bytes(entries))
    for i in range(entries):
        want[576 * i : 576 * i + 448] = bytes(entry.nope[i].tolist())
        for d, value in enumerate(entry.rope[i].tolist()):
            bits = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
            struct.pack_into("<H", want, 576 * i + 448 + 2 * d, bits)
        for g in range(7):
            want[576 * entries + 8 * i + g] = int(entry.scales[i, g])
    assert page == bytes(want)
    for got, part in zip(kv.unpack_page(kv.pack_page(entry), entries), entry, strict=True):
        assert torch.equal(got, part)


def test_batched_pages_are_pages() -> None:
    entry = kv.Entry(*(part.unflatten(0, (2, 3)) for part in kv.quantize(example(6))))
    pages = kv.pack_page(entry)
    for i in range(2):
        assert torch.equal(pages[i], kv.pack_page(kv.Entry(*(part[i] for part in entry))))
    assert torch.equal(kv.dequantize(kv.unpack_page(pages, 3)), kv.dequantize(entry))


def test_scatter_writes_its_slots_and_nothing_else() -> None:
    pages = torch.full((3, kv.page_bytes(4)), 0xAB, dtype=torch.uint8)
    before, new = pages.clone(), kv.quantize(example(5))
    after = kv.scatter(pages, torch.tensor([9, -1, 0, 3, -1]), new, 4)
    assert torch.equal(pages, before)
    touched = torch.zeros_like(pages, dtype=torch.bool)
    for slot in (9, 0, 3):
        page, row = divmod(slot, 4)
        touched[page, 576 * row : 576 * row + 576] = True
        touched[page, 4 * 576 + 8 * row : 4 * 576 + 8 * row + 7] = True
    assert bool((after[~touched] == 0xAB).all())
    got = kv.fetch(after, torch.tensor([[9], [0], [3]]), 4)
    assert torch.equal(kv.dequantize(got)[:, 0], kv.dequantize(new)[[0, 2, 3]])


def test_nan_poisons_its_group_or_its_rope_value() -> None:
    k = torch.ones(1, 512)
    k[0, 70], k[0, 500] = torch.nan, torch.nan
    bad = kv.rounded(k)[0].isnan()
    assert bad.nonzero().flatten().tolist() == [*range(64, 128), 500]


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.kv: last size=448; allowed: 512"):
        kv.quantize(torch.ones(448))
    with pytest.raises(ValueError, match=r"oracles\.formats\.kv: bytes of a page=1168; allowed: 1728 for 2 entries"):
        kv.unpack_page(torch.zeros(1168, dtype=torch.uint8), 2)
