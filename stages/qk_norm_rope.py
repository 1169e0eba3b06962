"""RMSNorm over each head of the queries and, weighted, of the latent that is key and value, then rope of both.

q (t, h, 512), kv (t, 512), weight (512) bf16, positions (t) int64, of which cos and sin are made, fp32. Outputs: q
(t, h, 512), kv (t, 512) bf16, exact against fp64 arithmetic on those cos and sin; `q_ideal`, `kv_ideal`, the same
tensors, against exact angles. The kernel works in place, on copies of the inputs. Not proven here: speed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernels.qk_norm_rope import qk_norm_rope
from oracles import fused, norm, rope
from stages.shared import data, passes
from stages.shared.data import Tensors

WIDTH = 512


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Projections before the norm; a row of zeros among them."""
    q, kv = data.activations(case.t, case.h, WIDTH, rng=rng), data.activations(case.t, WIDTH, rng=rng)
    if case.t > 2:
        q[1, 0], kv[2] = 0, 0
    if case.t and case.get("hostile", False):
        q[0, 0, 3], kv[0, -1], q[-1, -1, 100], q[0, 1, :16] = float("nan"), -float("nan"), float("inf"), -0.0
    q = passes.heads_apart(q) if case.get("layout", "packed") == "padded" else q
    positions = torch.arange(case.t) + case.start
    cos, sin = (angles.float() for angles in rope.angles(positions, data.frequencies(True)))
    weight = data.norm(WIDTH, rng).to(passes.DTYPES[case.get("weight", "bf16")])
    return {"q": q, "kv": kv, "weight": weight, "positions": positions, "cos": cos, "sin": sin}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel, in place on copies."""
    q, kv = passes.copied(x["q"]), passes.copied(x["kv"])
    qk_norm_rope(q, kv, x["weight"], x["cos"], x["sin"], backend=backend, kernel=mutant)
    return {"q": q, "kv": kv, "q_ideal": q, "kv_ideal": kv}


def bench(x: Tensors, case: Any, backend: Any) -> Callable[[], Any]:
    """The kernel alone, in place, without the copies."""
    return partial(qk_norm_rope, x["q"], x["kv"], x["weight"], x["cos"], x["sin"], backend=backend)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Norm and rotation in fp64, nothing rounded between; simulated: by cos and sin as fp32 numbers, and rounded."""
    cos, sin = _angles(x) if kind == "ideal" else (x["cos"], x["sin"])
    q, kv = fused.qk_norm_rope(x["q"], x["kv"], x["weight"], cos, sin)
    return _twice({"q": q, "kv": kv} if kind == "ideal" else {"q": q.bfloat16(), "kv": kv.bfloat16()})


def _twice(outputs: Tensors) -> Tensors:
    return outputs | {f"{name}_ideal": y for name, y in outputs.items()}


def plain(x: Tensors, case: Any) -> Tensors:
    """In f32, rounded once."""
    cos, sin = (t.float() for t in _angles(x))
    q, kv = norm.rms_norm(x["q"], dtype=torch.float32), norm.rms_norm(x["kv"], x["weight"], dtype=torch.float32)
    q = rope.rotate(q, cos[:, None], sin[:, None], dtype=torch.float32)
    return _twice({"q": q.bfloat16(), "kv": rope.rotate(kv, cos, sin, dtype=torch.float32).bfloat16()})


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Norms over other dims or with other weights, rotations elsewhere."""
    if not case.t:
        return {}
    cos, sin = _angles(x)
    q, kv, w = x["q"].double(), x["kv"].double(), x["weight"].double()
    whole = q * q.square().mean((-1, -2), keepdim=True).add(1e-6).rsqrt()
    nope = q * q[..., :448].square().mean(-1, keepdim=True).add(1e-6).rsqrt()
    right = fused.qk_norm_rope(q, kv, w, cos, sin)
    first = rope.rotate(kv, cos, sin)
    variants = {
        # one norm over all heads
        "norm_over_heads": {"q": rope.rotate(whole, cos[:, None], sin[:, None])},
        # the norm without the rope dims
        "norm_of_nope": {"q": rope.rotate(nope, cos[:, None], sin[:, None])},
        # queries get the weight of the latent
        "weighted_queries": {"q": rope.rotate(norm.rms_norm(q, w), cos[:, None], sin[:, None])},
        # the weight is 1 + w
        "one_plus_weight": {"kv": rope.rotate(norm.rms_norm(kv, 1 + w), cos, sin)},
        # rope before the weighted norm
        "rope_first": {"kv": norm.rms_norm(first, w)},
        # the latent is not rotated
        "kv_not_rotated": {"kv": norm.rms_norm(kv, w)},
        # eps outside of the root: zeros become NaN without it
        "no_eps": {"q": q / q.square().mean(-1, keepdim=True).sqrt(), "kv": right[1]},
    }
    return {name: _twice(outputs) for name, outputs in variants.items()}


def _angles(x: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return rope.angles(x["positions"], data.frequencies(True))
