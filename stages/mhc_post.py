"""The output of a sublayer goes back into the residual streams, which are mixed: X'_k = C_k y + sum_j M_jk X_j.

y (t, d), streams (t, 4, d) bf16, c (t, 4), m (t, 4, 4) f32. Output: streams (t, 4, d) bf16, exact against fp64
arithmetic rounded once, and `streams_ideal`, the same tensor, against fp64. `in_place`: the kernel overwrites (a copy
of) its input. Not proven here: speed, fusion with what follows (mhc_pre_rmsnorm_quantize has it).
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.mhc import mhc_post
from oracles import mhc
from stages.shared import data, passes
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """M as Sinkhorn makes it, far from symmetric."""
    logits = 2 * torch.randn(case.t, 4, 4, generator=rng)
    return data.streams(case.t, case.d, rng) | {
        "y": data.activations(case.t, case.d, rng=rng),
        "c": 2 * torch.sigmoid(torch.randn(case.t, 4, generator=rng)),
        "m": mhc.sinkhorn(logits.double()).float(),
    }


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel."""
    streams = passes.copied(x["streams"]) if case.get("in_place", False) else x["streams"]
    out = streams if case.get("in_place", False) else None
    return _both(mhc_post(x["y"], streams, x["c"], x["m"], out=out, backend=backend, kernel=mutant))


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The formula in fp64; simulated: rounded once."""
    return _both(mhc.post(x["y"], x["streams"], x["c"], x["m"], kind="simulated" if kind == "simulated" else "ideal"))


def _both(streams: torch.Tensor) -> Tensors:
    return {"streams": streams, "streams_ideal": streams}


def plain(x: Tensors, case: Any) -> Tensors:
    """The formula in f32, rounded once."""
    return _both(mhc.post(x["y"], x["streams"], x["c"], x["m"], dtype=torch.float32).bfloat16())


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other mixes."""
    if not case.t:
        return {}
    y, s, c, m = (x[name].double() for name in ("y", "streams", "c", "m"))
    variants = {
        # the sum runs over the second index of M
        "transposed": {"streams": mhc.post(y, s, c, m.mT)},
        # C without its factor of two
        "half_c": {"streams": mhc.post(y, s, c / 2, m)},
        # streams are not mixed
        "not_mixed": {"streams": mhc.post(y, s, c, torch.eye(4).double().expand_as(m))},
        # the old streams are lost
        "no_residual": {"streams": mhc.post(y, 0 * s, c, m)},
        # M and C of the token before
        "other_token": {"streams": mhc.post(y, s, c.roll(1, 0), m.roll(1, 0))},
        # later streams see the earlier ones as they are written
        "in_place": {"streams": _in_place(y, s.clone(), c, m)},
    }
    return {name: _both(outputs["streams"]) for name, outputs in variants.items()}


def _in_place(y: torch.Tensor, s: torch.Tensor, c: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    for k in range(4):
        s[:, k] = c[:, k, None] * y + torch.einsum("tj,tjd->td", m[..., k], s)
    return s
