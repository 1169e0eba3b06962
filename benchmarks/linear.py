"""Linears on a GPU: time of CUDA-graph replays over rotated, cold weights, beside what limits them and beside
others' kernels in the same run.

Every call in a graph reads its own weights; the sets of one shape are at least 256 MB, so nothing is left in L2. Times
are medians over replays, divided by the calls of a graph: the gap between two graph nodes is inside. Activations stay
in L2, as they do when the kernel before wrote them. `read` is a cold read of the same bytes by a plain kernel.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import backends
from gate.bench.timing import CALLS, SETS_BYTES, graph_us
from kernels.linear import Packed, grouped_linear, linear, multi_linear, rows_for

PROCESSES = 12


@dataclass(frozen=True)
class Shape:
    """A decode shape: weights of `n` rows and `k` columns, `parts` of them (their rows, if a tuple)."""

    name: str
    n: int
    k: int
    parts: int | tuple[int, ...] = 1
    grouped: bool = False


SHAPES = (
    Shape("wq_a", 1024, 4096),
    Shape("wkv", 512, 4096),
    Shape("wq_b", 32768, 1024),
    Shape("wo_a", 1024, 4096, 8, True),
    Shape("wo_b", 4096, 8192),
    Shape("expert up", 4096, 4096),
    Shape("expert down", 4096, 2048),
    Shape("LM head", 129280, 4096),
)
"""Flash's linears."""
PROJECTIONS = Shape("projections", 0, 4096, (1024, 512, 1024, 1024, 256, 256, 64))
"""What reads a layer's input: wq_a, wkv, compressor wkv and wgate, the indexer's, the indexer's head weights."""


MANY = (8, 32, 64, 256, 1024, 4096)
"""Tokens beyond decode, for one shape."""


def sets_of(size: int) -> int:
    """Weight sets of `size` bytes that a graph rotates over."""
    return max(CALLS, -(-SETS_BYTES // size))


@dataclass(frozen=True)
class Job:
    """One line of the table: a shape, its tokens, and how."""

    shape: Shape
    m: int = 1
    activation: str = "f16"
    form: str = "nvfp4"
    pdl: bool = True

    @property
    def packed(self) -> Packed:
        """The weight without its bytes."""
        parts = self.shape.parts if isinstance(self.shape.parts, tuple) else (self.shape.n,) * self.shape.parts
        rows = rows_for(parts, self.shape.k, self.activation)
        empty = torch.empty(0, dtype=torch.uint8)
        grouped = self.shape.grouped
        return Packed(empty, torch.empty(0), self.form, parts, self.shape.k, rows, grouped, self.activation)

    def weights(self, count: int, *, fill: bool = True) -> list[Packed]:
        """Packed weights of random codes and finite scales."""
        config, made = self.packed.config, []
        for _ in range(count):
            shape = (config.sets * config.tiles_per_set, config.units, config.unit_bytes)
            data = torch.empty(shape, dtype=torch.uint8, device="cuda")
            if fill:
                data.random_(0, 256)
                data[..., config.weight_bytes :] &= 0x3F
            alpha = torch.ones(len(config.parts), device="cuda")
            made.append(replace(self.packed, data=data.flatten(), alpha=alpha))
        return made

    def call(self, backend: Any, x: torch.Tensor, weight: Packed, out: torch.Tensor | None = None) -> Any:
        """One launch."""
        run = grouped_linear if self.shape.grouped else multi_linear if len(weight.parts) > 1 else linear
        settings = {} if self.pdl else {"pdl": False}
        return run(x, weight, out=out, activation=self.activation, backend=backend, **settings)

    def x(self) -> torch.Tensor:
        """Activations."""
        groups = (len(self.packed.parts),) if self.shape.grouped else ()
        return torch.randn(self.m, *groups, self.shape.k, device="cuda").bfloat16()


def us(job: Job, backend: Any) -> tuple[float, list[torch.Tensor]]:
    """Median microseconds of a job's call, and the bytes that it read."""
    weights = job.weights(sets_of(job.packed.config.tile_bytes * job.packed.config.tile_count))
    x = job.x()
    first = job.call(backend, x, weights[0])
    base = first[0]._base if isinstance(first, list) else first
    calls = [lambda w=w: job.call(backend, x, w, base) for w in weights]
    return graph_us(calls), [w.data for w in weights]


def cold_read_us(sets: list[torch.Tensor]) -> float:
    """A plain read of the same bytes, the best of a few forms of it."""
    from gate.bench import reads

    return min(graph_us(calls) for calls in reads.calls(sets))


def others_us(shape: Shape, m: int) -> tuple[float, float]:
    """cuBLAS in BF16 and torch._scaled_mm in FP8 (16 tokens at least), in the same run."""
    x = torch.randn(m, shape.k, device="cuda", dtype=torch.bfloat16)
    wide = [
        torch.randn(shape.n, shape.k, device="cuda", dtype=torch.bfloat16)
        for _ in range(sets_of(2 * shape.n * shape.k))
    ]
    bf16 = graph_us([lambda w=w: torch.mm(x, w.T) for w in wide])
    narrow = [w.to(torch.float8_e4m3fn) for w in wide]
    narrow += [w.clone() for w in narrow[: sets_of(shape.n * shape.k) - len(narrow)]]
    x8, one = torch.randn(max(m, 16), shape.k, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")
    fp8 = graph_us([lambda w=w: torch._scaled_mm(x8, w.T, one, one, out_dtype=torch.bfloat16) for w in narrow])
    return bf16, fp8


def compile_one(job: Job) -> str:
    """Into the compile cache; a process of its own for each job makes this parallel. Returns what went wrong."""
    try:
        backend = backends.get("cuda", arch="sm_90a")
        job.call(backend, job.x(), job.weights(1, fill=False)[0])
        torch.cuda.synchronize()
    except Exception as error:
        return f"{job}: {type(error).__name__}: {error}"
    return ""


def jobs() -> list[Job]:
    """Every line of the table."""
    plain = [Job(shape, 1, pdl=False) for shape in SHAPES]
    exact = [Job(shape, m) for m in (1, 4, 16) for shape in SHAPES]
    rounded = [Job(shape, m, "e4m3") for m in (1, 4, 16) for shape in SHAPES if shape.n >= 4096]
    formats = [Job(SHAPES[5], m, form=form) for m in (1, 16, MANY[-1]) for form in ("mxfp4", "fp8")]
    several = [Job(PROJECTIONS, m) for m in (1, 4, 16)] + [Job(PROJECTIONS, 1, pdl=False)]
    return plain + exact + several + rounded + formats + [Job(SHAPES[5], m) for m in MANY]


def main() -> None:
    """Print the table, a line a job, and everything as JSON to the file that LINEAR_JSON names."""
    if not torch.cuda.is_available():
        print("needs a GPU of sm_90a")
        return
    todo = jobs()
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        failed = {job: text for job, text in zip(todo, pool.map(compile_one, todo), strict=True) if text}
    backend = backends.get("cuda", arch="sm_90a")
    print(f"{backend.evidence}, torch {torch.__version__}, driver seen by torch: CUDA {torch.version.cuda}")
    reads: dict[tuple[str, str], float] = {}
    lines = []
    for job in todo:
        if job in failed:
            print(failed[job][:300])
            continue
        time, data = us(job, backend)
        key = (job.shape.name, job.form)
        if key not in reads:
            reads[key] = cold_read_us(data)
        floor = reads[key]
        size = data[0].numel()
        pdl = "pdl" if job.pdl else "-"
        print(
            f"{job.shape.name:12s} m={job.m:2d} {job.form:5s} {job.activation:4s} {pdl:3s} {time:7.2f} us "
            f"{size / time / 1e6:5.2f} TB/s read {floor:6.2f} us = {time / floor:4.2f} x",
            flush=True,
        )
        lines.append({"shape": job.shape.name, "m": job.m, "form": job.form, "activation": job.activation})
        lines[-1] |= {"pdl": job.pdl, "us": time, "bytes": size, "read_us": floor}
        del data
    for shape, m in [(shape, 1) for shape in SHAPES if not shape.grouped] + [(SHAPES[5], m) for m in MANY]:
        bf16, fp8 = others_us(shape, m)
        print(
            f"{shape.name:12s} m={m:2d} cuBLAS bf16 {bf16:7.2f} us, _scaled_mm fp8 (16 tokens at least) {fp8:7.2f} us",
            flush=True,
        )
        lines.append({"shape": shape.name, "m": m, "cublas_bf16_us": bf16, "scaled_mm_us": fp8})
    if "LINEAR_JSON" in os.environ:
        Path(os.environ["LINEAR_JSON"]).write_text(json.dumps(lines, indent=1))
