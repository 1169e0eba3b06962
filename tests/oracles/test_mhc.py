"""Hyper-connections against loops over streams, and transformers' module."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import mhc

N, D = 4, 6


def example(tokens: int = 3) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = {"streams": (tokens, N, D), "fn": (24, N * D), "scale": (3,), "base": (24,), "y": (tokens, D)}
    return {name: torch.randn(shape, generator=rng, dtype=torch.float64) for name, shape in shapes.items()}


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def dumb_pre(x: list[list[float]], e: dict[str, torch.Tensor]) -> tuple[list[float], list[float], list[list[float]]]:
    v = [value for stream in x for value in stream]
    s = 1 / math.sqrt(sum(a * a for a in v) / len(v) + 1e-6)
    z = [sum(a * b for a, b in zip(row, v, strict=True)) * s for row in e["fn"].tolist()]
    scale, base = e["scale"].tolist(), e["base"].tolist()
    a = [sigmoid(z[j] * scale[0] + base[j]) + 1e-6 for j in range(N)]
    c = [2 * sigmoid(z[N + j] * scale[1] + base[N + j]) for j in range(N)]
    m = [[math.exp(z[2 * N + N * j + k] * scale[2] + base[2 * N + N * j + k]) for k in range(N)] for j in range(N)]
    m = [[v / sum(row) + 1e-6 for v in row] for row in m]
    for turn in range(39):
        if turn % 2 == 0:
            sums = [sum(m[j][k] for j in range(N)) + 1e-6 for k in range(N)]
            m = [[m[j][k] / sums[k] for k in range(N)] for j in range(N)]
        else:
            m = [[v / (sum(row) + 1e-6) for v in row] for row in m]
    return [sum(a[j] * x[j][i] for j in range(N)) for i in range(D)], c, m


def test_pre_equals_loops() -> None:
    e = example()
    x, c, m = mhc.pre(e["streams"], e["fn"], e["scale"], e["base"])
    for t in range(3):
        want = dumb_pre(e["streams"][t].tolist(), e)
        for got, value in zip((x[t], c[t], m[t]), want, strict=True):
            torch.testing.assert_close(got, torch.tensor(value, dtype=torch.float64), rtol=1e-12, atol=1e-13)


def test_post_sums_over_the_source_stream() -> None:
    e = example()
    _, c, m = mhc.pre(e["streams"], e["fn"], e["scale"], e["base"])
    got = mhc.post(e["y"], e["streams"], c, m)
    for t in range(3):
        for k in range(N):
            want = c[t, k] * e["y"][t] + sum(m[t, j, k] * e["streams"][t, j] for j in range(N))
            torch.testing.assert_close(got[t, k], want, rtol=1e-13, atol=1e-13)
    assert not torch.allclose(got, mhc.post(e["y"], e["streams"], c, m.mT), atol=1e-2)


def test_head_equals_loops() -> None:
    e = example()
    got = mhc.head(e["streams"], e["fn"][:N], e["scale"][:1], e["base"][:N])
    same_a, _, _ = mhc.pre(e["streams"], e["fn"], e["scale"], e["base"])
    torch.testing.assert_close(got, same_a, rtol=1e-13, atol=1e-13)


def test_columns_sum_to_one_and_rows_nearly() -> None:
    logits = 4 * torch.randn(50, N, N, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    m = mhc.sinkhorn(logits)
    assert bool((m > 0).all())
    torch.testing.assert_close(m.sum(dim=-2), torch.ones(50, N).double(), rtol=0, atol=2e-6)
    assert (m.sum(dim=-1) - 1).abs().max() < (mhc.sinkhorn(logits, iterations=2).sum(dim=-1) - 1).abs().max()


def test_logits_that_would_overflow() -> None:
    m = mhc.sinkhorn(torch.tensor([[800.0, 0.0], [0.0, -800.0]], dtype=torch.float64))
    assert bool(m.isfinite().all())


@pytest.mark.parametrize("tokens", [1, 8, 128, 2048])
def test_tokens_do_not_touch_each_other(tokens: int) -> None:
    e = example(tokens)
    one = slice(tokens - 1, tokens)
    whole = mhc.pre(e["streams"], e["fn"], e["scale"], e["base"])
    alone = mhc.pre(e["streams"][one], e["fn"], e["scale"], e["base"])
    for got, want in zip(whole, alone, strict=True):
        torch.testing.assert_close(got[one], want, rtol=1e-13, atol=1e-13)


def test_equals_transformers() -> None:
    from transformers.models.deepseek_v4 import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection

    from tests.oracles.tiny import CONFIG, layer

    t = layer(torch.Generator().manual_seed(2), CONFIG, 0, False)
    module = DeepseekV4HyperConnection(DeepseekV4Config(**CONFIG))
    module.load_state_dict({part: t[f"hc_attn_{part}"] for part in ("fn", "base", "scale")})
    streams = torch.randn(1, 5, 4, 256, generator=torch.Generator().manual_seed(3))
    c, m, x = module(streams)
    mine = mhc.pre(streams, t["hc_attn_fn"], t["hc_attn_scale"], t["hc_attn_base"], dtype=torch.float32)
    for got, want in zip(mine, (x, c, m), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_simulated_rounds_x_to_its_dtype_and_the_mixers_to_fp32() -> None:
    e = example()
    streams = e["streams"].bfloat16()
    args = (streams, e["fn"], e["scale"], e["base"])
    for got, want, storage in zip(
        mhc.pre(*args, kind="simulated"), mhc.pre(*args), (torch.bfloat16, torch.float32, torch.float32), strict=True
    ):
        assert torch.equal(got, want.to(storage).double()) and not torch.equal(got, want)
    _, c, m = mhc.pre(*args)
    post = mhc.post(e["y"], streams, c, m)
    assert torch.equal(mhc.post(e["y"], streams, c, m, kind="simulated"), post.bfloat16().double())


def test_no_tokens_and_bad_shapes() -> None:
    e = example(0)
    assert [part.shape for part in mhc.pre(e["streams"], e["fn"], e["scale"], e["base"])] == [(0, D), (0, N), (0, N, N)]
    with pytest.raises(ValueError, match=r"oracles\.mhc\.pre: rows of fn=4; allowed: 24"):
        mhc.pre(e["streams"], e["fn"][:4], e["scale"], e["base"])
    with pytest.raises(ValueError, match=r"oracles\.mhc: fn\.shape=\(24, 23\); allowed: \[rows, 24\]"):
        mhc.pre(e["streams"], e["fn"][:, 1:], e["scale"], e["base"])
