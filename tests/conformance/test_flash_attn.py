"""flash-attn-4, unmodified, against torch in fp64: forward, backward, variable lengths, pages, split KV, MLA."""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.conformance.worker import BLACKWELL, BOTH, Cases, check, installed

CASES = Cases()
pytestmark = installed("flash-attn-4", "4.0.0b36")
# P and the output are rounded to 16 bits: measured 2.2e-3 and 2.9e-4. The lse is float32.
BF16, F16, LSE = 2.6e-3, 3.4e-4, 2.0e-6
LIMITS = {"out": BF16, "lse": LSE}
Pairs = dict[str, tuple[Any, Any]]


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).cuda()


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    allowed: torch.Tensor | None = None,
    scores: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale q k^T + scores) v and the log of its denominator, in fp64. q [b, m, h, d], k and v [b, n, g, …]
    with h a multiple of g, allowed [m, n] or [b, 1, m, n]; returns [b, m, h, d] and [b, h, m]."""
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale) + (0 if scores is None else scores)
    if allowed is not None:
        s = s.masked_fill(~allowed.to(s.device), float("-inf"))
    return (s.softmax(-1) @ v).transpose(1, 2), s.logsumexp(-1)


def causal(m: int, n: int, window: int | None = None) -> torch.Tensor:
    """Row i sees columns up to i + n - m, and not more than `window` to the left of that."""
    distance = torch.arange(m)[:, None] + (n - m) - torch.arange(n)
    return (distance >= 0) if window is None else (distance >= 0) & (distance <= window)


def forward(
    d: int,
    d_v: int = 0,
    m: int = 200,
    n: int = 300,
    heads: int = 2,
    groups: int = 2,
    dtype: torch.dtype = torch.bfloat16,
    window: int | None = None,
    **settings: Any,
) -> Pairs:
    from flash_attn.cute import flash_attn_func

    q, k, v = (randn(1, *s, dtype=dtype) for s in ((m, heads, d), (n, groups, d), (n, groups, d_v or d)))
    if window is not None:
        settings["window_size"] = (window, 0)
    out, lse = flash_attn_func(q, k, v, return_lse=True, **settings)[:2]
    masked = settings.get("causal") or window is not None
    expected, expected_lse = attention(q, k, v, causal(m, n, window) if masked else None)
    return {"out": (out, expected), "lse": (lse, expected_lse)}


for name, settings in {
    "d64": dict(d=64),
    "d128": dict(d=128),
    "d128_even": dict(d=128, m=256, n=256),
    "d192_128": dict(d=192, d_v=128),
    "d256": dict(d=256),
    "causal": dict(d=128, causal=True),
    "gqa": dict(d=64, heads=8),
    "mqa_causal": dict(d=128, heads=4, groups=1, causal=True),
    "window": dict(d=128, window=70),
    "causal_1024": dict(d=128, m=1024, n=1024, heads=4, groups=4, causal=True),
}.items():
    CASES.add(LIMITS, name=f"forward_{name}")(partial(forward, **settings))
CASES.add({"out": F16, "lse": LSE}, name="forward_f16")(partial(forward, d=128, dtype=torch.float16))
CASES.add(LIMITS, BLACKWELL, name="forward_split_kv")(partial(forward, d=128, m=100, n=900, num_splits=3))


def backward(d: int, heads: int, groups: int, masked: bool) -> Pairs:
    from flash_attn.cute import flash_attn_func

    m, n = 128, 192
    given = [randn(1, *s).requires_grad_() for s in ((m, heads, d), (n, groups, d), (n, groups, d))]
    exact = [t.detach().double().requires_grad_() for t in given]
    out = flash_attn_func(*given, causal=masked)
    out = out[0] if isinstance(out, tuple) else out
    dout = randn(*out.shape)
    out.backward(dout)
    attention(*exact, causal(m, n) if masked else None)[0].backward(dout.double())
    return {name: (g.grad, e.grad) for name, g, e in zip(("dq", "dk", "dv"), given, exact, strict=True)}


# P and dS are rounded to 16 bits before they are multiplied again.
CASES.add(3.2e-3, name="backward_d128")(partial(backward, 128, 1, 1, False))
CASES.add(3.2e-3, name="backward_d64_causal_gqa")(partial(backward, 64, 4, 2, True))


@CASES.add(LIMITS)
def varlen() -> Pairs:
    """Three sequences in one batch, one of them shorter than a tile."""
    from flash_attn.cute import flash_attn_varlen_func

    q_ends, k_ends = [0, 130, 140, 300], [0, 200, 250, 510]
    q, k, v = randn(300, 2, 128), randn(510, 1, 128), randn(510, 1, 128)
    ends = [torch.tensor(e, dtype=torch.int32, device="cuda") for e in (q_ends, k_ends)]
    out, lse = flash_attn_varlen_func(
        q, k, v, cu_seqlens_q=ends[0], cu_seqlens_k=ends[1], max_seqlen_q=160, max_seqlen_k=260, causal=True,
        return_lse=True,
    )[:2]  # fmt: skip
    parts = []
    for (a, b), (c, e) in zip(pairwise(q_ends), pairwise(k_ends), strict=True):
        parts.append(attention(q[None, a:b], k[None, c:e], v[None, c:e], causal(b - a, e - c)))
    expected = torch.cat([p[0][0] for p in parts])
    return {"out": (out, expected), "lse": (lse, torch.cat([p[1][0] for p in parts], 1))}


@CASES.add(LIMITS)
def paged() -> Pairs:
    """Pages of 128 keys in no order, used to the middle of one."""
    from flash_attn.cute import flash_attn_varlen_func

    pages, table, used = 6, [[4, 1, 5], [0, 3, 2]], [300, 150]
    q, k, v = randn(2, 64, 4, 128), randn(pages, 128, 2, 128), randn(pages, 128, 2, 128)
    out, lse = flash_attn_varlen_func(
        q,
        k,
        v,
        page_table=torch.tensor(table, dtype=torch.int32, device="cuda"),
        seqused_k=torch.tensor(used, dtype=torch.int32, device="cuda"),
        return_lse=True,
    )[:2]
    parts = [
        attention(q[i : i + 1], k[row].flatten(0, 1)[None, : used[i]], v[row].flatten(0, 1)[None, : used[i]])
        for i, row in enumerate(table)
    ]
    return {"out": (out, torch.cat([p[0] for p in parts])), "lse": (lse, torch.cat([p[1] for p in parts]))}


def mla(ctas: int, m: int, n: int, heads: int, masked: bool = False, top_k: int = 0) -> Pairs:
    """Multi-head latent attention: 64 numbers of position beside 512 of content, which are the values, too. With
    `top_k`, each query names the keys that it sees; -1 names none."""
    from flash_attn.cute import flash_attn_func

    q, qv = randn(1, m, heads, 64), randn(1, m, heads, 512)
    k, v = randn(1, n, 1, 64), randn(1, n, 1, 512)
    settings: dict[str, Any] = {"causal": masked}
    allowed = causal(m, n) if masked else None
    if top_k:
        named = torch.stack([torch.randperm(n)[:top_k] for _ in range(m)]).int()
        named[:, -5:] = -1
        settings["gather_kv_indices"] = named[None].cuda()
        allowed = torch.zeros(m, n, dtype=torch.bool)
        for row, columns in enumerate(named[:, :-5].long()):
            allowed[row, columns] = True
    os.environ["FLASH_ATTENTION_MLA_1CTA"] = str(int(ctas == 1))
    out, lse = flash_attn_func(q, k, v, qv=qv, return_lse=True, **settings)[:2]
    content = torch.einsum("bmhd,bnd->bhmn", qv.double(), v[:, :, 0].double()) * 576**-0.5
    expected, expected_lse = attention(q, k, v, allowed, content, 576**-0.5)
    return {"out": (out, expected), "lse": (lse, expected_lse.transpose(1, 2))}


for ctas in (1, 2):
    for name, settings in {
        "dense": dict(m=1, n=300, heads=128),
        "causal": dict(m=3, n=200, heads=64, masked=True),
        "top_k": dict(m=2, n=512, heads=64 if ctas == 1 else 128, top_k=256),
    }.items():
        CASES.add(LIMITS, BLACKWELL, name=f"mla_{name}_{ctas}cta")(partial(mla, ctas, **settings))


@pytest.mark.parametrize("name, arch", CASES.pairs())
def test_flash_attn(worker, name, arch):
    check(CASES, name, worker(__name__, arch).run(name))


def test_both_architectures_have_their_cases():
    assert {arch for case in CASES.values() for arch in case.arches} == set(BOTH)
