"""Fused passes: nothing is rounded between their steps."""

from __future__ import annotations

import functools

import torch

from oracles import fused, mhc
from oracles.formats import e4m3, fp8, nvfp4
from oracles.rope import angles, frequencies

rng = torch.Generator().manual_seed(0)
X, W = torch.randn(3, 128, generator=rng).bfloat16(), 1 + 0.2 * torch.randn(128, generator=rng)
GLOBAL = torch.tensor(0.01)
NVFP4 = functools.partial(nvfp4.quantize, global_scale=GLOBAL)


def unit(x: torch.Tensor) -> torch.Tensor:
    return x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()


def same(got: tuple[torch.Tensor, torch.Tensor], want: torch.Tensor) -> None:
    for mine, other in zip(got, NVFP4(want.float()), strict=True):
        assert torch.equal(mine, other)


def test_norm_and_quantise_round_once() -> None:
    same(fused.rmsnorm_quantize(X, W, NVFP4), unit(X) * W.double())
    codes, scales = fused.rmsnorm_quantize(X, W, fp8.quantize_1x128)
    values = (unit(X) * W.double()).float()
    for row in range(3):
        s = 2.0 ** torch.ceil(torch.log2(values[row].abs().max().double() / 448))
        assert 2.0 ** (int(scales[row]) - 127) == s and torch.equal(codes[row], e4m3.encode(values[row] / s))


def test_mixing_norm_and_quantise_round_once() -> None:
    streams = torch.randn(3, 4, 128, generator=rng).bfloat16()
    fn, scale, base = (torch.randn(s, generator=rng) for s in ((24, 512), (3,), (24,)))
    stored, c, m = fused.mhc_pre_rmsnorm_quantize(streams, fn, scale, base, W, NVFP4)
    x, want_c, want_m = mhc.pre(streams, fn, scale, base)
    same(stored, unit(x) * W.double())
    assert torch.equal(c, want_c) and torch.equal(m, want_m)


def test_swiglu_and_quantise_round_once() -> None:
    gate, up = 8 * torch.randn(2, 3, 64, generator=rng)
    want = gate.double().clamp(max=10) * torch.sigmoid(gate.double().clamp(max=10)) * up.double().clamp(-10, 10)
    same(fused.swiglu_quantize(gate, up, NVFP4), want)


def test_norms_and_rotation_of_queries_and_keys() -> None:
    q, kv = torch.randn(3, 2, 128, generator=rng), torch.randn(3, 128, generator=rng)
    cos, sin = angles(torch.tensor([0, 5, 9]), frequencies(64))
    got_q, got_kv = fused.qk_norm_rope(q, kv, W, cos, sin)
    for got, rows, w in ((got_q, q, torch.ones(128)), (got_kv[:, None], kv[:, None], W)):
        flat = unit(rows) * w.double()
        pairs = torch.view_as_complex(flat[..., 64:].unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(pairs * torch.complex(cos, sin)[:, None]).flatten(-2)
        torch.testing.assert_close(got, torch.cat((flat[..., :64], turned), dim=-1), rtol=1e-13, atol=1e-13)


def test_rotating_back_and_quantising_round_once() -> None:
    o = torch.randn(3, 2, 128, generator=rng)
    cos, sin = angles(torch.tensor([0, 5, 9]), frequencies(64))
    pairs = torch.view_as_complex(o[..., 64:].double().unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * torch.complex(cos, -sin)[:, None]).flatten(-2)
    same(fused.rope_quantize(o, cos, sin, NVFP4), torch.cat((o[..., :64].double(), turned), dim=-1))
