"""Quantising and fused passes on a GPU: time of CUDA-graph replays over rotated, cold tensors, beside copies of as many
bytes in the same run.

`copied` is the time that torch's own copy kernel takes for the same traffic (half read, half written) in a graph of its
own; `of copy` is its share. Times include the gap between graph nodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import backends
from gate.bench.timing import CALLS, SETS_BYTES, graph_us


@dataclass(frozen=True)
class Line:
    """One line of the table: a pass at a size, its bytes, launches, and what makes calls on fresh tensors."""

    name: str
    tokens: int
    k: int
    moved: int
    launches: int
    make: Callable[[], Callable[[], Any]]


def lines(backend: Any) -> list[Line]:
    """Every line: Flash's and Pro's widths at 1 token and at 8192."""
    found = []
    for tokens in (1, 8192):
        for k in (4096, 7168):
            found += quantisers(backend, tokens, k)
        found += [swiglu(backend, tokens, 2048, "nvfp4"), swiglu(backend, tokens, 2048, "fp8")]
        found += [rope_line(backend, tokens, 64), rope_line(backend, tokens, 1), norm_rope(backend, tokens, 64)]
        found += mhc(backend, tokens, 4096)
    return found


def bf16(*shape: int) -> torch.Tensor:
    """Random activations."""
    return torch.randn(shape, device="cuda").bfloat16()


def global_scale(largest: float) -> torch.Tensor:
    """That of a tensor whose largest magnitude this is."""
    return torch.tensor(largest / (6 * 448), device="cuda")


def quantisers(backend: Any, tokens: int, k: int) -> list[Line]:
    """The two formats, alone and behind the norm, and NVFP4 with its global scale made on the way."""
    from kernels.quantize_fp8 import quantize_fp8
    from kernels.quantize_nvfp4 import quantize_nvfp4
    from kernels.rmsnorm_quantize import rmsnorm_quantize

    size, g, w = tokens * k, global_scale(6.5), (1 + 0.1 * torch.randn(k, device="cuda")).bfloat16()
    nvfp4, fp8 = size * 41 // 16, size * 3 + size // 128

    def alone(run: Callable[..., Any], *args: Any, **settings: Any) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            x = bf16(tokens, k)
            out = run(x, *args, backend=backend, **settings)
            return lambda: run(x, *args, backend=backend, out=out, **settings)

        return make

    return [
        Line("quantize_nvfp4", tokens, k, nvfp4, 1, alone(quantize_nvfp4, g)),
        Line("quantize_nvfp4, g made", tokens, k, nvfp4 + 2 * size, 2, alone(quantize_nvfp4)),
        Line("quantize_fp8", tokens, k, fp8, 1, alone(quantize_fp8)),
        Line("rmsnorm_quantize nvfp4", tokens, k, nvfp4, 1, alone(rmsnorm_quantize, w, g)),
        Line("rmsnorm_quantize fp8", tokens, k, fp8, 1, alone(rmsnorm_quantize, w, format="fp8")),
    ]


def swiglu(backend: Any, tokens: int, k: int, form: str) -> Line:
    """Halves of one projection."""
    from kernels.swiglu_quantize import swiglu_quantize

    g = global_scale(30.0) if form == "nvfp4" else None

    def make() -> Callable[[], Any]:
        both = bf16(tokens, 2 * k)
        gate, up = both[:, :k], both[:, k:]
        out = swiglu_quantize(gate, up, g, format=form, backend=backend)
        return lambda: swiglu_quantize(gate, up, g, format=form, out=out, backend=backend)

    written = 9 / 16 if form == "nvfp4" else 1 + 1 / 128
    return Line(f"swiglu_quantize {form}", tokens, k, int(tokens * k * (4 + written)), 1, make)


def angles(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin."""
    angle = torch.rand(tokens, 32, device="cuda")
    return angle.cos(), angle.sin()


def rope_line(backend: Any, tokens: int, heads: int) -> Line:
    """The last 64 of 512, in place."""
    from kernels.rope import rope

    cos, sin = angles(tokens)

    def make() -> Callable[[], Any]:
        x = bf16(tokens, heads, 512)
        rope(x, cos, sin, backend=backend)
        return lambda: rope(x, cos, sin, backend=backend)

    return Line(f"rope, {heads} heads", tokens, 64, tokens * (heads * 256 + 256), 1, make)


def norm_rope(backend: Any, tokens: int, heads: int) -> Line:
    """Queries and latent, in place."""
    from kernels.qk_norm_rope import qk_norm_rope

    cos, sin = angles(tokens)
    w = bf16(512)

    def make() -> Callable[[], Any]:
        q, kv = bf16(tokens, heads, 512), bf16(tokens, 512)
        qk_norm_rope(q, kv, w, cos, sin, backend=backend)
        return lambda: qk_norm_rope(q, kv, w, cos, sin, backend=backend)

    return Line(f"qk_norm_rope, {heads} heads", tokens, 512, tokens * ((heads + 1) * 2048 + 256), 1, make)


def mhc(backend: Any, tokens: int, d: int) -> list[Line]:
    """Pre-mix, post-mix, and both; what does not fit the caches is counted as read twice."""
    from kernels.mhc import mhc_post, mhc_post_pre_rmsnorm_quantize, mhc_pre_rmsnorm_quantize

    fn, mix, base, w = (torch.randn(s, device="cuda") for s in ((24, 4 * d), (3,), (24,), (d,)))
    pre = (fn, mix, base, w.bfloat16())
    read, weights = tokens * d * 8, fn.numel() * 4
    codes = tokens * d + tokens * d // 128

    def post() -> tuple[torch.Tensor, ...]:
        return (
            bf16(tokens, d),
            bf16(tokens, 4, d),
            torch.rand(tokens, 4, device="cuda"),
            torch.rand(tokens, 4, 4, device="cuda"),
        )

    def make_pre() -> Callable[[], Any]:
        streams, own = bf16(tokens, 4, d), (fn.clone(), *pre[1:])
        return lambda: mhc_pre_rmsnorm_quantize(streams, *own, format="fp8", backend=backend)

    def make_post() -> Callable[[], Any]:
        given = post()
        out = torch.empty_like(given[1])
        return lambda: mhc_post(*given, out=out, backend=backend)

    def make_both() -> Callable[[], Any]:
        given, own = (*post(), fn.clone(), *pre[1:]), {"format": "fp8", "backend": backend}
        return lambda: mhc_post_pre_rmsnorm_quantize(*given, **own)

    return [
        Line("mhc_pre_rmsnorm_quantize", tokens, d, 2 * read + weights + codes, 2, make_pre),
        Line("mhc_post", tokens, d, 2 * read + tokens * d * 2, 1, make_post),
        Line("mhc_post_pre_…", tokens, d, 3 * read + tokens * d * 2 + weights + codes, 2, make_both),
    ]


def copied_us(moved: int) -> float:
    """A copy of half as many bytes: as many moved."""
    half = max(16, moved // 2)
    count = calls_for(moved)
    pairs = [[torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(count)]
    return graph_us([partial(a.copy_, b) for a, b in pairs])


def calls_for(moved: int) -> int:
    """Calls of a graph, each with tensors of its own: nothing is left in L2, or 24 of small ones."""
    return max(4, min(CALLS, -(-SETS_BYTES // moved))) if moved > 1 << 20 else CALLS


def main() -> None:
    """Print the table, and everything as JSON to the file that PASSES_JSON names."""
    if not torch.cuda.is_available():
        print("needs a GPU of sm_90a")
        return
    backend = backends.get("cuda", arch="sm_90a")
    print(f"{backend.evidence}, torch {torch.__version__}")
    print(f"{'pass':26s} {'tokens':>6s} {'k':>5s} {'us':>8s} {'TB/s':>5s} {'copied':>8s} {'of copy':>7s} launches")
    results = []
    for line in lines(backend):
        try:
            time = graph_us([line.make() for _ in range(calls_for(line.moved))])
        except Exception as error:
            print(f"{line.name:26s} {line.tokens:6d} {line.k:5d} {type(error).__name__}: {str(error)[:200]}")
            continue
        copied = copied_us(line.moved)
        print(
            f"{line.name:26s} {line.tokens:6d} {line.k:5d} {time:8.2f} {line.moved / time / 1e6:5.2f} {copied:8.2f} "
            f"{copied / time:7.2f} {line.launches}",
            flush=True,
        )
        row = {"name": line.name, "tokens": line.tokens, "k": line.k, "us": time, "bytes": line.moved}
        results.append(row | {"copied_us": copied, "launches": line.launches})
    if "PASSES_JSON" in os.environ:
        Path(os.environ["PASSES_JSON"]).write_text(json.dumps(results, indent=1))
