"""A checkpoint in each published format reads back as the values that its bytes stand for, on the device that is asked.

A model of one layer is written in the case's `form` and loaded as f32 values. Outputs: linear (FP8 in blocks of
128 x 128 where the form has it), experts (MXFP4 or NVFP4; w1, w3 and w2 of all experts, flat), matrix (BF16), norm and
wide (FP32), table (int64): exactly. The judge rounds by brute force.
Not proven here: shards, damaged files, other namings, speed (tests/model/checkpoint).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import load, random_tensors, write
from model.weights import dense
from stages.shared import tiny
from stages.shared.tiny import Tensors

LINEAR, MATRIX, NORM = "layers.0.attn.wq_b.weight", "embed.weight", "layers.0.attn_norm.weight"
WIDE, TABLE = "layers.0.hc_attn_fn", "layers.0.ffn.gate.tid2eid"
GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """All tensors of the model, by published name."""
    seed = int(torch.randint(0, 2**31, (), generator=rng))
    return random_tensors(tiny.config().with_ratios(0), seed)


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`write`, then `load`."""
    config = tiny.config().with_ratios(0)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), config, {name: t.cpu() for name, t in x.items()}, case.form, shard_bytes=case.shard_bytes)
        _, weights = load(folder, precision="fp32", device=x[MATRIX].device)
    layer = weights.layers[0]
    assert layer.moe.table is not None
    return {
        "linear": dense(layer.attention.wq_b),
        "experts": torch.cat([dense(w).flatten() for w in (layer.moe.w1, layer.moe.w3, layer.moe.w2)]),
        "matrix": weights.embed,
        "norm": layer.attn_norm,
        "wide": layer.hc_attn.fn,
        "table": layer.moe.table,
    }


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Rounding as the form says; NVFP4's scales are products in f32."""
    return _stored(x, case.form)


def plain(x: Tensors, case: Any) -> Tensors:
    """The same values in f32."""
    return {name: t if name == "table" else t.float() for name, t in _stored(x, case.form).items()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other scales, other orders."""
    right = _stored(x, case.form)
    found = {
        # w1 and w3 exchanged
        "gate_and_up_exchanged": {"experts": _experts(x, case.form, ("w3", "w1", "w2"))},
        # an expert's place is that of its neighbour
        "next_expert": {"experts": _experts(x, case.form, shift=1)},
        # norms stored as w - 1
        "norm_plus_one": {"norm": right["norm"] + 1},
        # expert ids of the neighbouring token
        "table_shifted": {"table": right["table"].roll(1, 0)},
    }
    if case.form in ("native", "nvfp4"):
        found |= {
            # exponents of the scales one too large
            "scale_times_two": {"linear": 2 * right["linear"], "experts": 2 * right["experts"]},
            # low and high nibble exchanged
            "nibbles_swapped": {"experts": right["experts"].unflatten(0, (-1, 2)).flip(1).flatten()},
            # the other FP4 format
            "other_format": {"experts": _experts(x, "nvfp4" if case.form == "native" else "native")},
        }
    return found


def _stored(x: Tensors, form: str) -> Tensors:
    exact = form == "fp32"
    linear = _fp8(x[LINEAR]) if form in ("native", "nvfp4") else x[LINEAR].double()
    return {
        "linear": linear,
        "experts": _experts(x, form),
        "matrix": x[MATRIX].double(),
        "norm": (x[NORM] if exact else x[NORM].bfloat16()).double(),
        "wide": x[WIDE].double(),
        "table": x[TABLE],
    }


def _experts(x: Tensors, form: str, order: tuple[str, ...] = ("w1", "w3", "w2"), shift: int = 0) -> torch.Tensor:
    count = tiny.config().n_routed_experts
    parts = []
    for name in order:
        for e in range(count):
            stem = f"layers.0.ffn.experts.{(e + shift) % count}"
            w = x[f"{stem}.{name}.weight"].double()
            if form == "native":
                w = _blocks(w, 32, lambda amax: torch.exp2(torch.ceil(torch.log2(amax / 6))))
            elif form == "nvfp4":
                pair = [name] if name == "w2" else ["w1", "w3"]
                largest = max(float(x[f"{stem}.{n}.weight"].abs().max()) for n in pair)
                g = torch.tensor(largest, dtype=torch.float32) / 2688.0
                w = _blocks(w, 16, lambda amax, g=g: (_e4m3(amax.float() / (6 * g)).float() * g).double())
            parts.append(w.flatten())
    return torch.cat(parts)


def _blocks(w: torch.Tensor, size: int, scale: Any) -> torch.Tensor:
    """Nearest values of the E2M1 grid under a scale for each block; ties to the even code."""
    blocks = w.unflatten(-1, (-1, size))
    step = scale(blocks.abs().amax(-1, keepdim=True))
    value = (blocks / step).float().double()
    middle = (GRID[1:] + GRID[:-1]) / 2
    code = torch.bucketize(value.abs(), middle)
    tie = (value.abs()[..., None] == middle).any(-1) & (code % 2 == 1)
    return (GRID[(code + tie).clamp(max=7)] * value.sign() * step).flatten(-2)


def _fp8(w: torch.Tensor) -> torch.Tensor:
    tiles = w.double().unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
    step = torch.exp2(torch.ceil(torch.log2(tiles.abs().amax((1, 3), keepdim=True) / 448)))
    return (_e4m3((tiles / step).float()) * step).flatten(2).flatten(0, 1)


def _e4m3(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float8_e4m3fn).double()
