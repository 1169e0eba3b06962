"""Each attention mutant overrides little, does what its name says, and is invisible where its docstring says so."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import oracles.fmha
from kernels.fmha import fmha


@pytest.fixture(scope="module")
def backend() -> Any:
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch="sm_100a")


def status(backend: Any, name: str, s_kv: int, *, same_kv: bool = False) -> str:
    """pass, wrong_values, not_finite or hang, for 64 query rows whose logits rise from tile to tile."""
    from emulator.errors import Deadlock
    from mutants.fmha import MUTANTS

    rng = torch.Generator().manual_seed(11)
    q = torch.randn((1, 64, 1, 64), generator=rng) + 0.5
    k = torch.randn((1, s_kv, 1, 64), generator=rng) + (torch.arange(s_kv) // 128).view(1, -1, 1, 1) / 4
    v = torch.randn((1, s_kv, 1, 64), generator=rng) + 0.5
    q, k, v = q.half(), k.half(), v.half()
    v = k if same_kv else v
    try:
        result = fmha(q, k, v, backend=backend, kernel=MUTANTS[name])
    except Deadlock:
        return "hang"
    if not bool(torch.isfinite(result.out).all()):
        return "not_finite"
    out, lse = oracles.fmha.attention(q, k, v, scale=1 / 8)
    right = torch.allclose(result.out.double(), out, atol=4e-3) and torch.allclose(result.lse.double(), lse, atol=1e-4)
    return "pass" if right else "wrong_values"


SEEN = {
    "kv_tile_pinned": (256, "wrong_values"),
    "tmem_round_trip": (256, "wrong_values"),
    "no_rescale": (256, "wrong_values"),
    "first_pv_accumulates": (128, "not_finite"),
    "p_wrong_layout": (128, "wrong_values"),
    "tail_not_masked": (100, "wrong_values"),
    "row_max_tile_0": (256, "wrong_values"),
    "wrong_tx_count": (128, "hang"),
    "missing_commit": (128, "hang"),
    "stage_never_released": (384, "hang"),
    "k_for_v": (128, "wrong_values"),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_mutant_shows_its_fault(backend: Any, name: str) -> None:
    s_kv, expected = SEEN[name]
    assert status(backend, name, s_kv) == expected


@pytest.mark.parametrize(
    ("name", "s_kv"),
    [
        ("kv_tile_pinned", 128),
        ("tmem_round_trip", 128),
        ("no_rescale", 128),
        ("row_max_tile_0", 128),
        ("tail_not_masked", 256),
        ("stage_never_released", 256),
        ("p_wrong_layout", 1),
    ],
)
def test_a_mutant_is_invisible_where_nothing_meets_its_fault(backend: Any, name: str, s_kv: int) -> None:
    assert status(backend, name, s_kv) == "pass"


def test_k_for_v_is_invisible_if_they_are_one_tensor(backend: Any) -> None:
    assert status(backend, "k_for_v", 256, same_kv=True) == "pass"


@pytest.mark.usefixtures("backend")
def test_a_mutant_overrides_one_step_of_the_kernel() -> None:
    from kernels.fmha.sm100 import FmhaSm100
    from mutants.fmha import MUTANTS

    assert set(MUTANTS) == set(SEEN)
    for name, mutant in MUTANTS.items():
        own = [member for member, value in vars(mutant).items() if inspect.isfunction(value)]
        # the tile mode is counted twice, for K and for V: it is one mistake made in both
        assert len(own) == (2 if name == "kv_tile_pinned" else 1), name
        assert all(hasattr(FmhaSm100, member) for member in own), name
        assert inspect.getdoc(mutant)
