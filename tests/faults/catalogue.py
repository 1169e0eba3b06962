"""Every sample kernel by name."""

from __future__ import annotations

from typing import Any

import torch

import oracles.fmha
from backends.emulation import EmulatedBackend
from tests.faults.samples import Call, Sample, Tensors, call_kernel


def _small(*shape: int) -> Any:
    """Small integers, never zero: sums are exact and a missing term shows."""
    return lambda rng: torch.randint(1, 5, shape, generator=rng).float()


def _vector(n: int) -> Any:
    return lambda rng: {"x": _small(n)(rng)}


def _matrix(m: int, n: int) -> Any:
    return lambda rng: {"x": _small(m, n)(rng)}


def _operands(m: int, n: int, k: int) -> Any:
    return lambda rng: {"a": _small(m, k)(rng).half(), "b": _small(n, k)(rng).half()}


def _reversed(group: int) -> Any:
    def oracle(given: Tensors) -> Tensors:
        return {"y": torch.cat([part.flip(0) for part in given["x"].double().split(group)])}

    return oracle


def _product(given: Tensors) -> Tensors:
    return {"c": given["a"].double() @ given["b"].double().T}


def _atoms(scale: torch.Tensor) -> torch.Tensor:
    """Scales (rows, blocks) as the tensor core reads them: atoms of 128 rows x 4 blocks, padded with ones."""
    rows, blocks = (-(-n // size) for n, size in zip(scale.shape, (128, 4), strict=True))
    padded = torch.full((rows * 128, blocks * 4), 0, dtype=torch.uint8)
    padded[: scale.shape[0], : scale.shape[1]] = scale
    return padded.view(rows, 4, 32, blocks, 4).permute(0, 3, 2, 1, 4).reshape(-1)


def _scaled(kind: str, m: int, n: int, k: int) -> Any:
    """Operands of 1, 2, 3 (as the format's bytes) and scales of 1 and 2."""
    codes, one, two, group = ((2, 4, 5), 0x38, 0x40, 16) if kind == "nvfp4" else ((0x38, 0x40, 0x44), 127, 128, 32)

    def inputs(rng: torch.Generator) -> Tensors:
        made = {}
        for name, rows in (("a", m), ("b", n)):
            drawn = torch.tensor(codes, dtype=torch.uint8)[torch.randint(3, (rows, k), generator=rng)]
            made[name] = drawn[:, ::2] | drawn[:, 1::2] << 4 if kind == "nvfp4" else drawn
            scale = torch.tensor([one, two], dtype=torch.uint8)[torch.randint(2, (rows, k // group), generator=rng)]
            made[f"scale_{name}"] = scale
        return {name: made[name] for name in ("a", "b")} | {
            f"scale_{name}": _atoms(made[f"scale_{name}"]) for name in ("a", "b")
        }

    return inputs


def _scaled_product(kind: str, m: int, n: int, k: int) -> Any:
    def values(given: Tensors, name: str, rows: int) -> torch.Tensor:
        raw, group = given[name], 16 if kind == "nvfp4" else 32
        if kind == "nvfp4":
            raw = torch.stack([raw & 15, raw >> 4], 2).reshape(rows, k)
            numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)[raw.long()]
        else:
            numbers = raw.view(torch.float8_e4m3fn).double()
        tiles, blocks = -(-rows // 128), -(-k // group // 4)
        scale = given[f"scale_{name}"].view(tiles, blocks, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(tiles * 128, -1)
        scale = scale[:rows, : k // group]
        factors = scale.view(torch.float8_e4m3fn).double() if kind == "nvfp4" else 2.0 ** (scale.double() - 127)
        return numbers * factors.repeat_interleave(group, 1)

    return lambda given: {"c": values(given, "a", m) @ values(given, "b", n).T}


def _kernel(module: str, name: str, outputs: dict[str, tuple[int, ...]], types: Any = None, **settings: Any) -> Call:
    def make() -> Any:
        # The catalogue itself needs no CuTe DSL.
        from importlib import import_module

        return getattr(import_module(f"tests.faults.kernels.{module}"), name)(**settings)

    return call_kernel(make, outputs, types)


def _attention_inputs(rng: torch.Generator) -> Tensors:
    """64 rows, 300 keys: three tiles, the last one ragged. Logits rise, so that every tile rescales."""
    q = torch.randn((1, 64, 1, 64), generator=rng) + 0.5
    k = torch.randn((1, 300, 1, 64), generator=rng) + (torch.arange(300) // 128).view(1, -1, 1, 1) / 4
    v = torch.randn((1, 300, 1, 64), generator=rng) + 0.5
    return {"q": q.half(), "k": k.half(), "v": v.half()}


def _attention(mutant: str = "") -> Call:
    def call(backend: EmulatedBackend, inputs: Tensors) -> Tensors:
        from kernels.fmha import fmha
        from mutants.fmha import MUTANTS

        copies = {name: backend.empty(tuple(t.shape), t.dtype).copy_(t) for name, t in inputs.items()}
        q, k, v = copies.values()
        result = fmha(q, k, v, backend=backend, kernel=MUTANTS[mutant] if mutant else None)
        assert result.out is not None and result.lse is not None
        return copies | {"out": result.out, "lse": result.lse}

    return call


def _attention_oracle(given: Tensors) -> Tensors:
    q, k, v = given.values()
    out, lse = oracles.fmha.attention(q, k, v, scale=1 / 8)
    return {"out": out, "lse": lse}


def attention(mutant: str = "") -> Sample:
    """The shipped attention kernel, or one of `mutants.fmha`."""
    name, about = (
        (f"fmha: {mutant}", "a mutant") if mutant else ("fmha", "the shipped attention kernel, three tiles of keys")
    )
    call = _attention(mutant)
    return Sample(name, "sm_100a", about, call, _attention_inputs, _attention_oracle, limit=4e-3)


_ALL = (
    Sample(
        "row_sum",
        "sm_100a",
        "row sums: shuffles, shared memory, two CTAs",
        _kernel("simt", "RowSum", {"y": (21,)}),
        _matrix(21, 140),
        lambda given: {"y": given["x"].double().sum(1)},
    ),
    Sample(
        "warp_reverse",
        "sm_100a",
        "reversal inside a warp through shared memory",
        _kernel("simt", "WarpReverse", {"y": (339,)}),
        _vector(339),
        _reversed(32),
    ),
    Sample(
        "async_copies",
        "sm_100a",
        "cp.async through three stages",
        _kernel("simt", "AsyncCopies", {"y": (2180,)}),
        _vector(2180),
        _reversed(512),
    ),
    Sample(
        "handover",
        "sm_100a",
        "named barriers between two groups of warps",
        _kernel("simt", "Handover", {"y": (333,)}),
        _vector(333),
        _reversed(64),
    ),
    Sample(
        "tma_double",
        "sm_100a",
        "TMA in, threads, TMA out; two stages each",
        _kernel("tma", "TmaDouble", {"y": (20, 148)}),
        _matrix(20, 148),
        lambda given: {"y": 2 * given["x"].double()},
    ),
    Sample(
        "cluster_sum",
        "sm_100a",
        "row sums of a cluster of four through distributed shared memory",
        _kernel("cluster", "ClusterSum", {"y": (5,)}),
        _matrix(5, 300),
        lambda given: {"y": given["x"].double().sum(1)},
    ),
    Sample(
        "cluster_push",
        "sm_100a",
        "st.async to every CTA of a cluster",
        _kernel("cluster", "ClusterPush", {"y": (4, 50)}),
        lambda rng: {"x": torch.randint(1, 9, (4, 50), generator=rng, dtype=torch.int32)},
        lambda given: {"y": given["x"].double().sum(0).expand(4, 50)},
    ),
    Sample(
        "mailbox",
        "sm_100a",
        "tensor memory between two groups of warps",
        _kernel("tmem", "Mailbox", {"y": (128, 75)}),
        _matrix(128, 75),
        lambda given: {"y": 2 * given["x"].double()},
    ),
    Sample(
        "gemm",
        "sm_100a",
        "tcgen05 GEMM: TMA, two stages, two accumulators",
        _kernel("gemm", "Gemm", {"c": (150, 85)}),
        _operands(150, 85, 176),
        _product,
    ),
    Sample(
        "gemm_pair",
        "sm_100a",
        "the same by pairs of CTAs (cta_group::2)",
        _kernel("gemm", "Gemm", {"c": (200, 85)}, ctas=2),
        _operands(200, 85, 176),
        _product,
    ),
    Sample(
        "wgmma",
        "sm_90a",
        "wgmma GEMM: TMA, three stages, two tiles in flight",
        _kernel("wgmma", "HopperGemm", {"c": (75, 37)}),
        _operands(75, 37, 304),
        _product,
    ),
    Sample(
        "nvfp4",
        "sm_100a",
        "block-scaled GEMM, NVFP4",
        _kernel(
            "scaled",
            "ScaledGemm",
            {"c": (100, 72)},
            types={"a": "Float4E2M1FN", "b": "Float4E2M1FN", "scale_a": "Float8E4M3FN", "scale_b": "Float8E4M3FN"},
            kind="nvfp4",
        ),
        _scaled("nvfp4", 100, 72, 448),
        _scaled_product("nvfp4", 100, 72, 448),
    ),
    Sample(
        "mxfp8",
        "sm_100a",
        "block-scaled GEMM, MXFP8",
        _kernel(
            "scaled",
            "ScaledGemm",
            {"c": (100, 72)},
            types={"a": "Float8E4M3FN", "b": "Float8E4M3FN", "scale_a": "Float8E8M0FNU", "scale_b": "Float8E8M0FNU"},
            kind="mxfp8",
        ),
        _scaled("mxfp8", 100, 72, 416),
        _scaled_product("mxfp8", 100, 72, 416),
    ),
    attention(),
)

SAMPLES = {sample.name: sample for sample in _ALL}
