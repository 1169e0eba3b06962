"""The residual streams are mixed down to one by sigmoid weights of their own normed values.

    z = (fn v) / sqrt(mean(v^2) + 1e-6), v all streams of a token;   x = sum_j (sigmoid(z_j scale + base_j) + 1e-6) X_j

streams (t, 4, d) in the dtype of the activations, fn (4, 4 d), base (4), scale (1) f32. Output: x (t, d).
Not proven here: the norm and the head behind it (lm_head).
"""

from __future__ import annotations

from typing import Any

import torch

from model.ops import Ops
from model.weights import HyperConnection
from oracles import mhc
from stages.shared import data, tiny
from stages.shared.tiny import Tensors


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Streams of different size and bias, and the three tensors of the mix, none of them trivial."""
    return data.streams(case.t, case.d, rng) | {
        "fn": torch.randn(4, 4 * case.d, generator=rng) / (4 * case.d) ** 0.5,
        "base": 0.5 * torch.randn(4, generator=rng),
        "scale": 1.0 + 0.5 * torch.rand(1, generator=rng),
    }


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Ops.hc_head`."""
    return {"x": Ops.oracles().hc_head(x["streams"], HyperConnection(x["fn"], x["base"], x["scale"]), tiny.config())}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The formula in fp64."""
    return {"x": mhc.head(x["streams"], x["fn"], x["scale"], x["base"])}


def plain(x: Tensors, case: Any) -> Tensors:
    """The weights in f32, the sum in bf16."""
    a = torch.sigmoid(_z(x).float() * x["scale"] + x["base"]) + 1e-6
    return {"x": (a.bfloat16()[..., None] * x["streams"]).sum(-2)}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other weights."""
    if not case.t:
        return {}
    wide, z = x["streams"].double(), _z(x)
    raw = wide.flatten(-2) @ x["fn"].double().mT
    scaled = z * x["scale"].double() + x["base"].double()
    shuffled = wide.transpose(-1, -2).flatten(-2)
    own = wide.square().mean(-1).add(1e-6).rsqrt()
    return {
        name: {"x": (a[..., None] * wide).sum(-2)}
        for name, a in {
            # a softmax over the streams
            "softmax": torch.softmax(scaled, -1),
            # twice the sigmoid, as for C of the sublayers
            "factor_two": 2 * torch.sigmoid(scaled),
            # z is not divided by the rms of all streams
            "not_normed": torch.sigmoid(raw * x["scale"].double() + x["base"].double()),
            # each stream is normed by itself
            "normed_each": torch.sigmoid(
                torch.einsum("tjd,kjd->tk", wide * own[..., None], x["fn"].double().unflatten(1, (4, -1)))
                * x["scale"].double()
                + x["base"].double()
            ),
            # the base is left out
            "no_base": torch.sigmoid(z * x["scale"].double()),
            # the scale multiplies the base too
            "base_scaled": torch.sigmoid((z + x["base"].double()) * x["scale"].double()),
            # the mean of the streams
            "mean": torch.full_like(z, 0.25),
            # v has the streams interleaved instead of one after the other
            "interleaved": torch.sigmoid(
                shuffled @ x["fn"].double().mT / shuffled.square().mean(-1, keepdim=True).sqrt() * x["scale"].double()
                + x["base"].double()
            ),
        }.items()
    }


def _z(x: Tensors) -> torch.Tensor:
    v = x["streams"].double().flatten(-2)
    return (v @ x["fn"].double().mT) * v.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
