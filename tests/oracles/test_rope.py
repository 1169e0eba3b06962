"""Rotary embedding against complex multiplication, published frequencies and transformers."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch

from oracles.rope import Yarn, angles, frequencies, rotate

YARN = frequencies(64, theta=160000.0, yarn=Yarn())
PLAIN = frequencies(64, theta=10000.0)


def test_plain_frequencies() -> None:
    want = [np.float32(10000.0 ** (-2 * i / 64)) for i in range(32)]
    assert PLAIN.dtype == torch.float32 and PLAIN.tolist() == want


def test_yarn_frequencies_one_pair_at_a_time() -> None:
    """The ramp lies between pair 15 and pair 25: below as they are, above divided by 16."""
    for i, got in enumerate(YARN.double().tolist()):
        f = 160000.0 ** (-2 * i / 64)
        rho = min(max((i - 15) / 10, 0.0), 1.0)
        assert got == pytest.approx(f * (1 - rho) + f / 16 * rho, rel=1e-7)


def test_yarn_frequencies_equal_transformers() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.deepseek_v4 import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4RotaryEmbedding

    from tests.oracles.tiny import CONFIG

    assert "yarn" in ROPE_INIT_FUNCTIONS
    buffers = dict(DeepseekV4RotaryEmbedding(DeepseekV4Config(**CONFIG)).named_buffers())
    for name, mine in (("compress_inv_freq", YARN), ("main_inv_freq", PLAIN)):
        torch.testing.assert_close(mine, buffers[name].float(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("freqs", [PLAIN, YARN])
def test_pairs_are_interleaved_complex_numbers(freqs: torch.Tensor) -> None:
    x = torch.randn(3, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 7, 70000])
    got = rotate(x, *angles(positions, freqs))
    assert torch.equal(got[:, :6], x[:, :6]) and torch.equal(got[0], x[0])
    for t, p in enumerate(positions.tolist()):
        for i in range(32):
            turn = cmath.exp(1j * float(np.float32(p) * np.float32(freqs[i].item())))
            want = complex(x[t, 6 + 2 * i], x[t, 7 + 2 * i]) * turn
            assert abs(complex(got[t, 6 + 2 * i], got[t, 7 + 2 * i]) - want) < 1e-13


def test_a_vector_that_tells_interleaved_from_half_split() -> None:
    x = torch.zeros(64, dtype=torch.float64)
    x[0] = 1.0
    got = rotate(x, *angles(torch.tensor(1), PLAIN))
    assert got.nonzero().flatten().tolist() == [0, 1]
    assert (got[0].item(), got[1].item()) == (math.cos(1.0), math.sin(1.0))


def test_the_inverse_takes_the_rotation_back_and_dots_see_only_the_distance() -> None:
    q, k = torch.randn(2, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    at = {p: angles(torch.tensor(p), PLAIN) for p in (3, 8, 103, 108)}
    torch.testing.assert_close(rotate(rotate(q, *at[103]), *at[103], inverse=True), q, rtol=0, atol=1e-14)
    near = rotate(q, *at[8]) @ rotate(k, *at[3])
    torch.testing.assert_close(rotate(q, *at[108]) @ rotate(k, *at[103]), near, rtol=0, atol=1e-5)


def test_the_angle_is_the_product_in_fp32() -> None:
    p = torch.tensor(1_000_003)
    cos, _ = angles(p, YARN)
    exact = torch.cos(p.double() * YARN.double())
    product = torch.tensor([float(np.float32(1_000_003) * np.float32(f)) for f in YARN.tolist()], dtype=torch.float64)
    assert torch.equal(cos, product.cos()) and 1e-3 < (cos - exact).abs().max().item() < 0.1


def test_heads_broadcast_and_fp32_is_close() -> None:
    x = torch.randn(2, 3, 4, 96, generator=torch.Generator().manual_seed(2))
    positions = torch.tensor([[5, 6, 7], [100, 200, 300]])
    cos, sin = angles(positions, YARN)
    got = rotate(x, cos[..., None, :], sin[..., None, :])
    assert torch.equal(got[1, 2, 3], rotate(x[1, 2, 3], *angles(torch.tensor(300), YARN)))
    single = (part.float()[..., None, :] for part in (cos, sin))
    torch.testing.assert_close(rotate(x, *single, dtype=torch.float32).double(), got, rtol=0, atol=1e-6)


def test_simulated_rounds_the_result_and_x_is_not_changed() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(3)).bfloat16()
    before, table = x.clone(), angles(torch.arange(4), PLAIN)
    got = rotate(x, *table, kind="simulated")
    assert torch.equal(got, rotate(x, *table).bfloat16().double()) and torch.equal(x, before)
    assert rotate(x[:0], table[0][:0], table[1][:0]).shape == (0, 64)


def test_too_few_dims_are_refused() -> None:
    with pytest.raises(ValueError, match=r"oracles\.rope: x\.shape=\(32,\); allowed: at least 64 in the last dim"):
        rotate(torch.ones(32), *angles(torch.tensor(0), PLAIN))
