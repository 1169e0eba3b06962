"""Rounding between kernels, and the errors of bad arguments."""

from __future__ import annotations

import pytest
import torch

from oracles.precision import expect, rounded


def test_simulated_reads_back_from_storage_and_ideal_does_not() -> None:
    x = torch.tensor([1.0 + 2.0**-9, 1.0 + 3 * 2.0**-9], dtype=torch.float64)
    assert rounded(x, torch.bfloat16, "ideal") is x
    assert torch.equal(rounded(x, torch.bfloat16, "simulated"), torch.tensor([1.0, 1.0078125], dtype=torch.float64))
    assert rounded(x, torch.float64, "simulated") is x


def test_errors_name_argument_value_and_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="oracles: kind='exact'; allowed: ideal, simulated"):
        rounded(torch.ones(1), torch.bfloat16, "exact")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"oracles\.op: size=3; allowed: 4"):
        expect("op", False, "size", 3, "4")
