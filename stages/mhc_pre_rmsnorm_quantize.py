"""mHC pre-mix, RMSNorm and quantisation: from the residual streams to a sublayer's input, with C and M for later.

streams (t, 4, d) bf16; fn (24, 4 d), mix (3), base (24) f32; weight (d) bf16; `format` and the rest as in
rmsnorm_quantize. Outputs: codes and scales, `y`, which is read from them, against the oracle through the format, and
`y_ideal`, the same numbers, against the unrounded one; c (t, 4), m (t, 4, 4) f32. `fused`: the streams are first made
by mhc_post, in the same two launches. Products and exponentials are fp32 in the kernel: a code beside a midpoint may
be its neighbour, so codes and scales are judged as numbers.
Not proven here: speed.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.mhc import mhc_post_pre_rmsnorm_quantize, mhc_pre_rmsnorm_quantize
from oracles import fused, mhc, norm
from stages.shared import data, passes
from stages.shared.data import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """None of the tensors trivial."""
    x = data.streams(case.t, case.d, rng) | {
        "fn": torch.randn(24, 4 * case.d, generator=rng) / (4 * case.d) ** 0.5,
        "base": data.vector(24, rng=rng),
        "mix": 1.0 + torch.rand(3, generator=rng),
        "weight": data.norm(case.d, rng),
    }
    if case.get("format", "nvfp4") == "nvfp4":
        x["g"] = torch.tensor(16.0 / (6 * 448))
    if case.get("nan", False):
        x["streams"][0, 2, 3] = float("nan")
    if case.get("fused", False):
        x["output"] = data.activations(case.t, case.d, rng=rng)
        x["c"] = 2 * torch.sigmoid(torch.randn(case.t, 4, generator=rng))
        x["m"] = mhc.sinkhorn(2 * torch.randn(case.t, 4, 4, generator=rng).double()).float()
    return x


def run(x: Tensors, case: Any, backend: Any, mutant: tuple[type, type, type] | None = None) -> Tensors:
    """The two passes."""
    pre = (x["fn"], x["mix"], x["base"], x["weight"], x.get("g"))
    settings = passes.form(case) | {"backend": backend, "kernels": mutant or (None, None, None)}
    if case.get("fused", False):
        found = mhc_post_pre_rmsnorm_quantize(x["output"], x["streams"], x["c"], x["m"], *pre, **settings)
    else:
        found = mhc_pre_rmsnorm_quantize(x["streams"], *pre, **settings)
    return passes.named(found.x) | {"c": found.c, "m": found.m}


def values(outputs: Tensors, case: Any) -> Tensors:
    """y over the global scale: the numbers that codes and scales stand for."""
    return data.both(passes.decoded(outputs, torch.ones(()), case))


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """In fp64; y simulated: through the format."""
    y, c, m = fused.mhc_pre_rmsnorm_quantize(streams(x, case), x["fn"], x["mix"], x["base"], x["weight"], lambda y: y)
    found = passes.composed(y, x.get("g"), case, kind)
    return found | data.both(found["y"]) | {"c": c, "m": m}


def streams(x: Tensors, case: Any) -> torch.Tensor:
    """What the pre-mix sees."""
    if not case.get("fused", False):
        return x["streams"]
    return mhc.post(x["output"], x["streams"], x["c"], x["m"], kind="simulated").to(x["streams"].dtype)


def plain(x: Tensors, case: Any) -> Tensors:
    """In f32, x rounded to bf16 before the norm and behind it."""
    y, c, m = mhc.pre(streams(x, case), x["fn"], x["mix"], x["base"], dtype=torch.float32)
    y = norm.rms_norm(y.bfloat16(), x["weight"], dtype=torch.float32).bfloat16()
    found = passes.composed(y.float(), x.get("g"), case, "simulated")
    return found | data.both(found["y"]) | {"c": c, "m": m}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other mixes and norms."""
    if not case.t:
        return {}
    right, v = oracle(x, case, "simulated"), streams(x, case)
    order = torch.cat((torch.arange(8), torch.arange(16).view(4, 4).T.flatten() + 8))
    pre = (x["fn"], x["mix"], x["base"])
    y, _, _ = mhc.pre(v, *pre)
    mean = norm.rms_norm(v.double().mean(-2), x["weight"])
    _, c, m = mhc.pre(v, x["fn"] / 2, x["mix"], x["base"])
    found = {
        # M by destination and source: look at mixes() in kernels/mhc/collapse.py
        "m_transposed": {"m": right["m"].mT},
        # logits of M taken column by column
        "logits_transposed": {"m": mhc.pre(v, x["fn"][order], x["mix"], x["base"][order])[2]},
        # C without its factor of two: look at doubled()
        "half_c": {"c": right["c"] / 2},
        # one pass instead of twenty
        "one_sinkhorn_pass": {"m": mhc.pre(v, *pre, iterations=1)[2]},
        # rows are normalised last
        "rows_last": {"m": right["m"] / right["m"].sum(-1, keepdim=True)},
        # the mean of the streams
        "mean_of_streams": _through(mean, x, case),
        # no norm of what is quantised
        "not_normed": _through(y, x, case),
        # fn is read at half its size: a scale of its format is left out
        "fn_halved": {"c": c, "m": m},
    }
    if case.get("fused", False):
        # the streams are those before the post-mix
        found["not_post_mixed"] = oracle({**x, "output": 0 * x["output"]}, case, "simulated")
    return found


def _through(y: torch.Tensor, x: Tensors, case: Any) -> Tensors:
    found = passes.composed(y.float(), x.get("g"), case, "simulated")
    return found | data.both(found["y"])
