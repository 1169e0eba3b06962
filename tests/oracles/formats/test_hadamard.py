"""The Hadamard matrix against the parity of common bits, and what it does to dot products."""

from __future__ import annotations

import pytest
import torch

from oracles.formats import hadamard


@pytest.mark.parametrize("n", [1, 2, 8, 128])
def test_entries_are_the_parity_of_common_bits(n: int) -> None:
    want = [[(-1) ** (i & j).bit_count() * n**-0.5 for j in range(n)] for i in range(n)]
    assert torch.equal(hadamard.matrix(n), torch.tensor(want, dtype=torch.float64))


def test_it_is_its_own_inverse_and_keeps_dot_products() -> None:
    q, k = torch.randn(2, 3, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(hadamard.transform(hadamard.transform(q)), q, rtol=0, atol=1e-14)
    both = hadamard.transform(q) @ hadamard.transform(k).mT
    torch.testing.assert_close(both, q @ k.mT, rtol=0, atol=1e-13)
    assert not torch.allclose(hadamard.transform(q) @ k.mT, q @ k.mT, atol=1.0)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.formats\.hadamard: n=96; allowed: a power of two"):
        hadamard.transform(torch.ones(96))
