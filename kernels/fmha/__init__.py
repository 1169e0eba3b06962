"""Attention: softmax(scale Q K^T) V with its log-sum-exp, and the two rungs below it (scores only, no softmax)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from kernels.fmha.config import HEAD_DIMS, SOFTMAX, FmhaConfig

NAMES = {torch.float16: "f16", torch.bfloat16: "bf16"}
ARCHS = {"sm_100a": "sm100"}
"""Architectures with a kernel, as backends spell them."""
MAX_LENGTH = 1 << 30
MAX_GRID_YZ = 65_535
MAX_STRIDE_BYTES = 1 << 40
"""A tensor map holds strides below 2^40 bytes."""
NO_DIAGONAL = 1 << 30
"""Row i sees key j iff j <= i + NO_DIAGONAL: always."""


@dataclass(frozen=True)
class FmhaOutput:
    """``out`` and ``lse`` of attention, ``out`` of softmax="identity", ``s`` of softmax="none"; the others are None."""

    out: torch.Tensor | None = None
    lse: torch.Tensor | None = None
    s: torch.Tensor | None = None


def fmha(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    *,
    softmax: str = "online",
    causal: bool = False,
    scale: float | None = None,
    kv_stages: int = 2,
    backend: Any,
    kernel: type | None = None,
) -> FmhaOutput:
    """out = softmax(scale q k^T) v per head, and lse = ln sum exp(scale q k^T) in base e.

    q        (b, s_q, h, d), f16 or bf16, d 64 or 128
    k, v     (b, s_kv, h_kv, d), same dtype, may be one tensor; query head i reads key head i // (h // h_kv)
    out      (b, s_q, h, d), same dtype;  lse (b, h, s_q) f32;  s (b, h, s_q, s_kv) f32
    softmax  "online": attention. "none": s = scale q k^T, -inf where hidden; v may be None.
             "identity": out = p v with p = s rounded to the dtype, 0 where hidden
    causal   row i sees key j iff j <= i + s_kv - s_q (bottom-right aligned). A row that sees nothing: out 0, lse -inf
    scale    finite and positive; default 1/sqrt(d)

    Strides are honoured: any, if the last is 1 and the others are multiples of 16 bytes. One launch, no
    synchronisation, inputs unchanged. Empty q or batch: empty outputs. Empty kv: out 0, lse -inf, filled by torch.
    Neither launches the kernel. ``kernel`` replaces its class, ``kv_stages`` is the depth of the K and V pipelines.
    Raises ValueError naming argument, value and what is allowed, before anything is launched.
    """
    arch = _check_options(softmax, causal, scale, backend)
    config = _check_tensors(q, k, v, softmax, kv_stages, arch, backend)
    (b, s_q, h, d), s_kv = q.shape, k.shape[1]
    scores, attention = softmax == "none", softmax == "online"
    out = None if scores else backend.empty((b, s_q, h, d), q.dtype, "out")
    lse = backend.empty((b, h, s_q), torch.float32, "lse") if attention else None
    s = backend.empty((b, h, s_q, s_kv), torch.float32, "s") if scores else None
    result = FmhaOutput(out, lse, s)
    if b == 0 or s_q == 0 or (s is not None and s_kv == 0):
        return result
    if s_kv == 0:
        out.zero_()
        if lse is not None:
            lse.fill_(-math.inf)
        return result

    from cutlass import Float32, Int32

    if kernel is None:
        from kernels.fmha.sm100 import FmhaSm100 as kernel
    scale = 1.0 / math.sqrt(d) if scale is None else float(scale)
    arguments = (
        _input(backend, q, "q"),
        _input(backend, k, "k"),
        None if scores else _input(backend, v, "v"),
        backend.tensor(s if scores else out, "s" if scores else "out", leading_dim=3),
        backend.tensor(lse, "lse", leading_dim=2) if attention else None,
        Float32(scale * math.log2(math.e) if attention else scale),  # online works in powers of two
        Int32(s_kv - s_q if causal else NO_DIAGONAL),
        backend.stream(),
    )
    backend.launch(backend.compile(kernel(config), *arguments, name="fmha"), *arguments)
    return result


def _check_options(softmax: str, causal: bool, scale: float | None, backend: Any) -> str:
    if backend.arch not in ARCHS:
        raise ValueError(f"fmha: arch={backend.arch} is not supported; supported: {', '.join(ARCHS)}")
    arch = ARCHS[backend.arch]
    if softmax not in SOFTMAX:
        raise ValueError(f"fmha: softmax={softmax!r} is not supported on {arch}; supported: {', '.join(SOFTMAX)}")
    if not isinstance(causal, bool):
        raise ValueError(f"fmha: causal={causal!r}; allowed: True, False")
    if scale is not None and not (isinstance(scale, int | float) and math.isfinite(scale) and scale > 0):
        raise ValueError(f"fmha: scale={scale!r}; allowed: a finite number above 0, or None for 1/sqrt(head_dim)")
    return arch


def _check_tensors(q: Any, k: Any, v: Any, softmax: str, kv_stages: int, arch: str, backend: Any) -> FmhaConfig:
    named = {"q": q, "k": k} | ({} if v is None and softmax == "none" else {"v": v})
    for name, x in named.items():
        _check_tensor(name, x, q, arch, backend)
    (b, s_q, h, d), (_, s_kv, h_kv, _) = q.shape, k.shape
    for name in ("k", "v"):
        want = (b, s_kv, h_kv, d)
        if name in named and tuple(named[name].shape) != want:
            raise ValueError(
                f"fmha: {name}.shape={tuple(named[name].shape)}; allowed: (b, s_kv, h_kv, d) = {want} with q and k"
            )
    if h_kv == 0 or h == 0 or h % h_kv:
        raise ValueError(f"fmha: q has h={h} heads, k has h_kv={h_kv}; allowed: h a positive multiple of h_kv")
    for name, value, allowed in (
        ("s_q", s_q, MAX_LENGTH),
        ("s_kv", s_kv, MAX_LENGTH),
        ("h", h, MAX_GRID_YZ),
        ("b", b, MAX_GRID_YZ),
    ):
        if value > allowed:
            raise ValueError(f"fmha: {name}={value}; allowed: at most {allowed}")
    config = FmhaConfig(NAMES[q.dtype], d, softmax, kv_stages)
    problems = config.problems(arch)
    if problems:
        raise ValueError(f"fmha: {'; '.join(problems)} (kernels/fmha/config.py)")
    return config


def _check_tensor(name: str, x: Any, q: Any, arch: str, backend: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"fmha: {name} is a {type(x).__name__}; allowed: a torch.Tensor")
    if x.dim() != 4:
        raise ValueError(f"fmha: {name}.shape={tuple(x.shape)}; allowed: 4 dimensions (b, s, heads, d)")
    if x.dtype not in NAMES or x.dtype != q.dtype:
        allowed = "float16, bfloat16" if name == "q" else f"the dtype of q, {q.dtype}"
        raise ValueError(f"fmha: {name}.dtype={x.dtype} is not supported on {arch}; supported: {allowed}")
    if x.device != backend.device:
        raise ValueError(f"fmha: {name}.device={x.device}; allowed: {backend.device}, where the backend runs")
    if x.shape[3] not in HEAD_DIMS:
        supported = ", ".join(map(str, HEAD_DIMS))
        raise ValueError(f"fmha: {name} has head_dim={x.shape[3]}, not supported on {arch}; supported: {supported}")
    if x.numel() == 0:
        return
    size = x.element_size()
    if x.data_ptr() % 16:
        raise ValueError(
            f"fmha: {name}.data_ptr() is {x.data_ptr() % 16} past a multiple of 16 bytes; allowed: multiples (TMA)"
        )
    if x.stride(3) != 1:
        raise ValueError(f"fmha: {name}.stride(3)={x.stride(3)}; allowed: 1")
    for mode, (extent, stride) in enumerate(zip(x.shape[:3], x.stride()[:3], strict=True)):
        if extent > 1 and (stride * size % 16 or stride * size >= MAX_STRIDE_BYTES):
            raise ValueError(
                f"fmha: {name}.stride({mode})={stride} elements of {size} bytes; "
                "allowed: multiples of 16 bytes below 2^40 (TMA)"
            )


def _input(backend: Any, x: torch.Tensor, name: str) -> Any:
    """The same memory to read; a mode of extent 1, which is never stepped along, gets a stride that TMA accepts."""
    strides = tuple(
        stride if extent > 1 or mode == 3 else x.shape[3]
        for mode, (extent, stride) in enumerate(zip(x.shape, x.stride(), strict=True))
    )
    x = x.detach() if x.requires_grad else x
    x = x if strides == x.stride() else x.as_strided(x.shape, strides)
    return backend.tensor(x, name, leading_dim=3, writable=False)
