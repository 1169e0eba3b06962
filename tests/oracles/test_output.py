"""Grouped output projection against one block-diagonal matrix and rotation by the negative position."""

from __future__ import annotations

import pytest
import torch

from oracles.formats import fp8
from oracles.output import output_projection
from oracles.rope import angles, frequencies

T, HEADS, C, GROUPS, RANK, D = 3, 4, 10, 2, 5, 6
rng = torch.Generator().manual_seed(0)
HEAD_OUT = torch.randn(T, HEADS, C, generator=rng)
WO_A, WO_B = (
    torch.randn(GROUPS * RANK, HEADS // GROUPS * C, generator=rng),
    torch.randn(D, GROUPS * RANK, generator=rng),
)
POSITIONS = torch.tensor([0, 9, 1000])
TABLE = angles(POSITIONS, frequencies(4))


def turned_back(o: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(o[..., -4:].double().contiguous().unflatten(-1, (-1, 2)))
    angle = (POSITIONS.float()[:, None] * frequencies(4)).double()
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), -angle)[:, None]).flatten(-2)
    return torch.cat((o[..., :-4].double(), turned), dim=-1)


def test_equals_a_block_diagonal_matrix() -> None:
    got = output_projection(HEAD_OUT, *TABLE, WO_A, WO_B, groups=GROUPS)
    dense = torch.block_diag(*WO_A.double().view(GROUPS, RANK, -1))
    want = turned_back(HEAD_OUT).flatten(1) @ dense.mT @ WO_B.double().mT
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_simulated_rounds_heads_latent_and_result() -> None:
    o = HEAD_OUT.bfloat16()
    got = output_projection(o, *TABLE, WO_A, WO_B, groups=GROUPS, kind="simulated")
    heads = turned_back(o).bfloat16().double().view(T, GROUPS, -1)
    z = [(heads[:, g] @ WO_A.double().view(GROUPS, RANK, -1)[g].mT).bfloat16().double() for g in range(GROUPS)]
    assert torch.equal(got, (torch.cat(z, dim=-1) @ WO_B.double().mT).bfloat16().double())


def test_the_activation_is_that_of_the_second_product() -> None:
    a, b = torch.randn(128, 20, generator=rng), torch.randn(D, 128, generator=rng)
    got = output_projection(HEAD_OUT, *TABLE, a, b, groups=GROUPS, activation=fp8.rounded_1x128)
    heads = turned_back(HEAD_OUT).view(T, GROUPS, -1)
    z = torch.cat([heads[:, g] @ a.double().view(GROUPS, 64, -1)[g].mT for g in range(GROUPS)], dim=-1)
    torch.testing.assert_close(got, fp8.rounded_1x128(z) @ b.double().mT, rtol=1e-9, atol=1e-9)


def test_no_tokens_and_groups_that_do_not_divide() -> None:
    none = TABLE[0][:0]
    assert output_projection(HEAD_OUT[:0], none, none, WO_A, WO_B, groups=GROUPS).shape == (0, D)
    with pytest.raises(ValueError, match=r"oracles\.output: groups=3; allowed: a divisor of 4 heads"):
        output_projection(HEAD_OUT, *TABLE, WO_A, WO_B, groups=3)
