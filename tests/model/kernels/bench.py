"""Small models with kernels bound, and the comparison of kernels with oracles on the model's own values."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import load, random_tensors, write
from model.config import Config
from model.kernels import KERNELS
from model.ops import Given, Ops
from model.weights import Weights

BACKENDS = {"sm90": "sm_90a", "sm100": "sm_100a"}


class Everything(dict[str, bool]):
    """A ledger in which all gates are proven."""

    def get(self, key: str, default: Any = None) -> bool:
        return True


def emulated(arch: str) -> Any:
    """A backend; skips without the DSL."""
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch=BACKENDS[arch])


def written(folder: Path, *ratios: int) -> tuple[Path, Config]:
    """A native checkpoint of the tiny sizes with these layers."""
    config = Config.load("tiny").with_ratios(*ratios) if ratios else Config.load("tiny")
    return write(folder, config, random_tensors(config, 5), "native"), config


def opened(folder: Path, precision: str, device: str = "cpu") -> tuple[Config, Weights]:
    """The checkpoint in one precision."""
    return load(folder, precision=precision, device=device)  # type: ignore[arg-type]


def bound(arch: str, backend: Any, config: Config, weights: Weights, stored: str = "plain") -> Ops:
    """All kernels that serve the model."""
    given = Given(config, weights, torch.bfloat16, stored)  # type: ignore[arg-type]
    return Ops.from_ledger(arch, Everything(), backend=lambda: backend, kernels=KERNELS, given=given)


def diff(got: torch.Tensor, want: torch.Tensor) -> float:
    """1 - 2 xy / (x^2 + y^2)."""
    x, y = got.double().flatten(), want.double().flatten()
    return float(1 - 2 * (x @ y) / (x @ x + y @ y))


def side_by_side(ops: Ops, oracles: Ops, found: dict[str, float]) -> Ops:
    """Every operation on both: oracles' results go on, so that one difference leads to no other; `found` keeps the
    largest difference of each operation that is a kernel."""

    def both(op: str) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            apart = [g.clone() if isinstance(g, torch.Tensor) else g for g in given]
            want = getattr(oracles, op)(*given)
            got = getattr(ops, op)(*apart)
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
            for mine, theirs in pairs:
                assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, op
                found[op] = max(found.get(op, 0.0), diff(mine, theirs))
            return want

        return run

    return oracles.replaced(**{op: both(op) for op in ops.kernels})
