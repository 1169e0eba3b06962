"""Pages of rows: bytes as the layouts say, two launches for any number of rows, rounding as read back."""

from __future__ import annotations

import pytest
import torch

from backends.base import Counters
from backends.count import counting
from model.cache.rows import Form, Rows
from oracles.formats import index_entry, kv

CPU = torch.device("cpu")
FORMS: list[tuple[Form, int]] = [("fp32", 512), ("bf16", 512), ("fp8", 512), ("fp32", 128), ("fp8", 128), ("fp4", 128)]


def values(count: int, width: int, seed: int = 0) -> torch.Tensor:
    """Biased values with an outlier in each row."""
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) + 0.3
    x[:, 5] *= 20
    return x


@pytest.mark.parametrize(("form", "width"), FORMS)
def test_rows_come_back_rounded_and_others_stay(form: Form, width: int):
    pool = Rows(3, 5, width, form, CPU)
    first, second = values(15, width), values(4, width, 1)
    pool.append(torch.arange(15), first)
    rows = torch.tensor([14, 0, 7, 5])
    pool.append(rows, second)
    wanted = pool.rounded(first).clone()
    wanted[rows] = pool.rounded(second)
    assert torch.equal(pool.read(torch.arange(15), torch.float32), wanted)
    assert torch.equal(pool.read(rows.view(2, 2), torch.float32), pool.rounded(second).view(2, 2, width))
    error = (pool.rounded(first) - first).norm() / first.norm()
    assert error < {"fp32": 1e-9, "bf16": 3e-3, "fp8": 3e-2, "fp4": 0.2}[form]


@pytest.mark.parametrize(("entries", "size"), [(64, 37_440), (2, 1_728), (32, 19_008)])
def test_pages_of_584_byte_entries(entries: int, size: int):
    """Scales lie behind all entries of a page, which is padded to a multiple of 576 bytes."""
    pool = Rows(2, entries, 512, "fp8", CPU)
    assert pool.page_bytes == size and pool.nbytes == 2 * size
    x = values(2 * entries, 512)
    pool.append(torch.arange(2 * entries), x)
    assert torch.equal(pool.data, kv.pack_page(kv.quantize(x.view(2, entries, 512))))


@pytest.mark.parametrize(("form", "each"), [("fp8", 132), ("fp4", 68)])
def test_pages_of_index_entries(form: Form, each: int):
    pool = Rows(2, 64, 128, form, CPU)
    assert pool.page_bytes == 64 * each
    x = values(128, 128).view(2, 64, 128)
    pool.append(torch.arange(128), x.flatten(0, 1))
    packed = index_entry.quantize_fp8(x) if form == "fp8" else index_entry.quantize_fp4(x)
    assert torch.equal(pool.data, index_entry.pack_page(*packed, "fp8" if form == "fp8" else "fp4"))


@pytest.mark.parametrize("count", [1, 3, 128])
def test_two_launches_at_most_whatever_the_count(count: int):
    for form, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("bf16", torch.float32)):
        pool, rows, x = Rows(2, 64, 512, form, CPU), torch.randperm(128)[:count], values(count, 512).to(dtype)
        counters = Counters()
        with counting(counters):
            pool.append(rows, x)
        assert counters.launches <= 2 and counters.syncs == 0
    pool = Rows(2, 64, 512, "fp8", CPU)
    with counting(counters := Counters()):
        pool.append(torch.arange(count), values(count, 512))
    assert counters.operations.count("index_put_") == 2 and counters.syncs == 0


def test_copying_a_page_leaves_the_others():
    pool = Rows(3, 4, 512, "fp8", CPU)
    x = values(12, 512)
    pool.append(torch.arange(12), x)
    pool.copy_page(2, 0)
    found = pool.read(torch.arange(12), torch.float32)
    assert torch.equal(found[:4], pool.rounded(x[8:])) and torch.equal(found[4:], pool.rounded(x[4:]))
