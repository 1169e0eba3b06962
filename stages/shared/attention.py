"""Inputs, launches and mistakes that the attention stages have in common.

Fields of a case: q, kv (lengths), d; and with defaults: dtype f16, batch 1, heads 1, kv_heads 1, causal false,
data biased, layout packed, same_kv false (K and V are one tensor), kv_stages 2.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import kernels.fmha.names
import oracles.fmha
from kernels.fmha import FmhaOutput, fmha
from kernels.fmha.config import FmhaConfig

Tensors = dict[str, torch.Tensor]

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
TILE = 128
"""Keys a tile, and rows a tile, of the kernel whose mistakes are imitated here."""


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """q (b, s_q, h, d), k and, unless same_kv, v (b, s_kv, h_kv, d) in the dtype and memory layout of the case."""
    make = _choice(case, "data", "biased", DATA)
    lay_out = _choice(case, "layout", "packed", LAYOUTS)
    dtype = _choice(case, "dtype", "f16", DTYPES)
    batch = case.get("batch", 1)
    q, k, v = make(
        rng,
        (batch, case.q, case.get("heads", 1), case.d),
        (batch, case.kv, case.get("kv_heads", 1), case.d),
    )
    named = {"q": q, "k": k} if case.get("same_kv", False) else {"q": q, "k": k, "v": v}
    return {name: lay_out(x.to(dtype)) for name, x in named.items()}


def _choice(case: Any, field: str, default: str, allowed: dict[str, Any]) -> Any:
    value = case.get(field, default)
    if value not in allowed:
        raise ValueError(f"{field}={value!r}; allowed: {', '.join(allowed)}")
    return allowed[value]


def _biased(rng: torch.Generator, q_shape: tuple[int, ...], kv_shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Means away from 0, one key in 16 four times as long, one value in 64 ten times as large."""
    q = torch.randn(q_shape, generator=rng) + 0.3
    k = torch.randn(kv_shape, generator=rng) + 0.3
    v = torch.randn(kv_shape, generator=rng) + 0.5
    k = torch.where(torch.rand((*kv_shape[:3], 1), generator=rng) < 1 / 16, 4 * k, k)
    v = torch.where(torch.rand(kv_shape, generator=rng) < 1 / 64, 10 * v, v)
    return q, k, v


def _rising(rng: torch.Generator, q_shape: tuple[int, ...], kv_shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Logits that rise from tile to tile, so that every row is rescaled at every tile."""
    q = 0.5 * torch.randn(q_shape, generator=rng) + 1.0
    tile = torch.div(torch.arange(kv_shape[1]), TILE, rounding_mode="floor").reshape(1, -1, 1, 1)
    k = 0.5 * torch.randn(kv_shape, generator=rng) + 0.25 * tile
    return q, k, torch.randn(kv_shape, generator=rng) + 0.5


def _large_logits(
    rng: torch.Generator, q_shape: tuple[int, ...], kv_shape: tuple[int, ...]
) -> tuple[torch.Tensor, ...]:
    """Logits of about +-6e4: rows of either sign, one key in 16 of the other sign. All is exact in f16, bf16 and f32.

    The last dimension adds an integer from -16 to 16 to q.k, so that the largest logits of a row differ by a few units.
    """
    q, k, v = _negative_logits(rng, q_shape, kv_shape)
    row_sign = torch.where(torch.arange(q_shape[1]) % 2 == 0, -1.0, 1.0).reshape(1, -1, 1, 1)
    key_sign = torch.where(torch.rand((*kv_shape[:3], 1), generator=rng) < 1 / 16, -1.0, 1.0)
    q[..., :-1] *= row_sign
    k[..., :-1] *= key_sign
    return q, k, v


def _negative_logits(
    rng: torch.Generator, q_shape: tuple[int, ...], kv_shape: tuple[int, ...]
) -> tuple[torch.Tensor, ...]:
    """Every logit about -6e4: a finite mask value above that would win the maximum."""
    d = q_shape[3]
    q, k = torch.full(q_shape, -75.0), torch.full(kv_shape, float(round(6e4 / math.sqrt(d) / 75.0)))
    q[..., -1] = 1.0
    k[..., -1] = torch.randint(-16, 17, kv_shape[:3], generator=rng).float()
    return q, k, torch.randn(kv_shape, generator=rng) + 0.5


DATA = {"biased": _biased, "rising": _rising, "large_logits": _large_logits, "negative_logits": _negative_logits}


def _packed(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous()


def _padded(x: torch.Tensor) -> torch.Tensor:
    """Rows, heads and head dimension each followed by elements that nobody may use."""
    b, s, h, d = x.shape
    room = torch.full((b, s + 3, h + 1, d + 8), math.nan, dtype=x.dtype)
    room[:, :s, :h, :d] = x
    return room[:, :s, :h, :d]


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """Memory in the order (b, h, s, d)."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


LAYOUTS = {"packed": _packed, "padded": _padded, "heads_first": _heads_first}


def launch(x: Tensors, case: Any, backend: Any, softmax: str, mutant: type | None) -> FmhaOutput:
    """One call of the host function for this case."""
    return fmha(
        x["q"],
        x["k"],
        x.get("v", x["k"]),
        softmax=softmax,
        causal=case.get("causal", False),
        kv_stages=case.get("kv_stages", 2),
        backend=backend,
        kernel=mutant,
    )


def names(case: Any, softmax: str) -> dict[str, Any]:
    """What the kernel of this case calls its tensor memory, warps and barriers."""
    return kernels.fmha.names.names(FmhaConfig(case.get("dtype", "f16"), case.d, softmax, case.get("kv_stages", 2)))


def attend(x: Tensors, case: Any, backend: Any, mutant: type | None) -> Tensors:
    """out (b, h, s_q, d) and lse (b, h, s_q) of the kernel with softmax="online"."""
    result = launch(x, case, backend, "online", mutant)
    return {"out": rows_of_heads(result.out), "lse": result.lse}


def exact_attention(x: Tensors, case: Any, kind: str) -> Tensors:
    """The same by the oracle, fp64."""
    out, lse = oracles.fmha.attention(*qkv(x), **settings(case), kind=kind)
    return {"out": rows_of_heads(out), "lse": lse}


def rows_of_heads(out: torch.Tensor) -> torch.Tensor:
    """(b, s_q, h, d) seen as (b, h, s_q, d), so that reports count query rows and not heads."""
    return out.transpose(1, 2)


def scale(case: Any) -> float:
    """The default softmax scale."""
    return 1.0 / math.sqrt(case.d)


def settings(case: Any) -> dict[str, Any]:
    """Keyword arguments of the oracle."""
    return {"scale": scale(case), "causal": case.get("causal", False)}


def qkv(x: Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v, which may be k."""
    return x["q"], x["k"], x.get("v", x["k"])


# ---------------------------------------------------------------------------- plain torch


def plain_logits(x: Tensors, case: Any) -> torch.Tensor:
    """scale q k^T in the input dtype, (b, h, s_q, s_kv), -inf where hidden."""
    q, k, _ = qkv(x)
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    s = (q * scale(case)).transpose(1, 2) @ k.permute(0, 2, 3, 1)
    return s.masked_fill(_hidden(s, case), -math.inf)


def plain_product(p: torch.Tensor, x: Tensors) -> torch.Tensor:
    """p v in the input dtype, (b, h, s_q, d)."""
    v = qkv(x)[2]
    return p @ v.repeat_interleave(p.shape[1] // v.shape[2], dim=2).transpose(1, 2)


def plain_attention(x: Tensors, case: Any) -> Tensors:
    """Matrix product, softmax, matrix product in the input dtype; a row that sees nothing is 0. LSE in f32."""
    s = plain_logits(x, case)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return {"out": plain_product(p, x), "lse": torch.logsumexp(s.float(), dim=-1)}


def _hidden(s: torch.Tensor, case: Any) -> torch.Tensor:
    s_q, s_kv = s.shape[-2:]
    below = torch.arange(s_q)[:, None] + (s_kv - s_q) if case.get("causal", False) else torch.full((s_q, 1), s_kv)
    return torch.arange(s_kv) > below


# ---------------------------------------------------------------------------- mistakes, in fp64


def logits(q: torch.Tensor, k: torch.Tensor, case: Any, **changed: Any) -> torch.Tensor:
    """The oracle's logits (b, h, s_q, s_kv), with another scale or causal if given."""
    return oracles.fmha.logits(q, k, **(settings(case) | changed))


def tile_0_reused(x: torch.Tensor) -> torch.Tensor:
    """(b, s, h, d) with every tile of rows replaced by the first."""
    return x[:, torch.arange(x.shape[1]) % TILE]


def heads_interleaved(x: torch.Tensor, heads: int) -> torch.Tensor:
    """K or V such that query head i reads head i % h_kv instead of i // (h // h_kv)."""
    order = torch.arange(heads) % x.shape[2]
    return x[:, :, order]


def online(
    s: torch.Tensor, v: torch.Tensor, *, rescale: bool = True, carry_max: bool = True, last_tile_only: bool = False
) -> Tensors:
    """Attention over tiles of keys as the kernel does it, or with a mistake: logits (b, h, i, j), v (b, j, h_kv, d).

    rescale=False leaves O alone when the maximum moves; carry_max=False keeps the maximum of tile 0;
    last_tile_only=True forgets O at every tile.
    """
    v = v.double().repeat_interleave(s.shape[1] // v.shape[2], dim=2).transpose(1, 2)
    row_max, row_sum = s.new_full((*s.shape[:3], 1), -math.inf), s.new_zeros((*s.shape[:3], 1))
    out = s.new_zeros((*s.shape[:3], v.shape[3]))
    for first in range(0, s.shape[3], TILE):
        tile = s[..., first : first + TILE]
        new_max = torch.maximum(row_max, tile.amax(dim=-1, keepdim=True))
        shift = new_max.masked_fill(new_max == -math.inf, 0.0)
        factor = torch.exp(row_max - shift)
        p = torch.exp(tile - shift)
        row_sum = row_sum * factor + p.sum(dim=-1, keepdim=True)
        out = (out * factor if rescale else out) * (0.0 if last_tile_only else 1.0) + p @ v[:, :, first : first + TILE]
        row_max = new_max if carry_max or first == 0 else row_max
    return {
        "out": out / row_sum.masked_fill(row_sum == 0.0, 1.0),
        "lse": (row_max + torch.log(row_sum)).squeeze(-1),
    }


def has_visible_tail(case: Any) -> bool:
    """Whether the last tile ends in keys that don't exist and that a row could see by mistake; a causal row can't."""
    return case.kv % TILE != 0 and not case.get("causal", False)


def tail_not_masked(x: Tensors, case: Any) -> Tensors:
    """The zero rows that TMA puts behind the last key take part."""
    q, k, v = qkv(x)
    missing = -k.shape[1] % TILE
    s = torch.nn.functional.pad(logits(q, k, case), (0, missing))
    return online(s, torch.nn.functional.pad(v, (0, 0, 0, 0, 0, missing)))


def is_empty(case: Any) -> bool:
    """Whether there is nothing to get wrong."""
    return case.q == 0 or case.kv == 0 or case.get("batch", 1) == 0


def causal_top_left(x: Tensors, case: Any) -> Tensors:
    """Row i sees key j iff j <= i, whatever the lengths."""
    q, k, v = qkv(x)
    s = logits(q, k, case, causal=False)
    return online(s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf), v)
