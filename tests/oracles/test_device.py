"""Oracles run on any device and read nothing on the host: on the meta device a CPU tensor or a read is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from oracles import attention, cache, compressor, experts, fused, indexer, sampler, sequence
from oracles.formats import e2m1, e4m3, fp8, index_entry, kv, mxfp4, nvfp4, swizzle
from oracles.rope import frequencies
from tests.oracles import tiny

META = torch.device("meta")


def values(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device=META)


def ids(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.long, device=META)


@pytest.mark.parametrize("tokens", [1, 150])
def test_the_whole_model(tokens: int) -> None:
    tensors = {name: t.to(META) for name, t in tiny.tensors(tiny.CONFIG).items()}
    logits = sequence.forward(ids(tokens), tensors, tiny.CONFIG, dtype=torch.float32)
    assert logits.shape == (tokens, 512) and logits.dtype == torch.float32 and logits.device == META
    drafts, streams = sequence.draft(values(tokens, 4, 256), ids(tokens), tensors, tiny.CONFIG)
    assert drafts.shape == (tokens, 512) and streams.shape == (tokens, 4, 256)


def _step() -> torch.Tensor:
    w = compressor.Weights(values(16, 6), values(16, 6), values(4, 16), values(8))
    return compressor.step(values(2, 6), ids(2), compressor.empty_carry(w, (2,)), w, frequencies(4, device=META))[0]


def _gathered() -> torch.Tensor:
    q, part = values(2, 3, 4, 8), attention.gather(values(2, 9, 8), ids(2, 3, 5), ids(2, 3))
    return attention.attention(q, [part], values(4), scale=1.0)[0]


def _routed() -> torch.Tensor:
    return experts.routed(values(3, 4), values(3, 2), ids(3, 2), values(9, 5, 4), values(9, 5, 4), values(9, 4, 5))


CASES: dict[str, tuple[Callable[[], torch.Tensor], tuple[int, ...]]] = {
    "compressor.step": (_step, (2, 8)),
    "attention.gather": (_gathered, (2, 3, 4, 8)),
    "attention.window_visible": (lambda: attention.window_visible(ids(3), ids(5)), (3, 5)),
    "attention.selected_visible": (lambda: attention.selected_visible(ids(3, 2), 7), (3, 7)),
    "indexer.topk": (lambda: indexer.topk(values(3, 4), ids(3), 6), (3, 6)),
    "experts.routed": (_routed, (3, 4)),
    "sampler.sample": (lambda: sampler.sample(values(2, 9), values(2), top_p=0.5), (2,)),
    "sampler.greedy": (lambda: sampler.greedy(values(2, 9)), (2,)),
    "cache.append": (lambda: cache.append(values(5, 2), values(3, 2), ids(3)), (5, 2)),
    "cache.ring_positions": (lambda: cache.ring_positions(ids(2), 8), (2, 8)),
    "fused.rmsnorm_quantize": (
        lambda: fused.rmsnorm_quantize(values(2, 128), values(128), fp8.quantize_1x128)[0],
        (2, 128),
    ),
    "e2m1": (lambda: e2m1.decode(e2m1.encode(values(2, 3))), (2, 3)),
    "e4m3": (lambda: e4m3.decode(e4m3.encode(values(2, 3))), (2, 3)),
    "fp8 rows": (lambda: fp8.rounded_1x128(values(2, 256), scale="fp32"), (2, 256)),
    "fp8 tiles": (lambda: fp8.dequantize_128x128(*fp8.quantize_128x128(values(130, 256))), (130, 256)),
    "mxfp4": (lambda: mxfp4.rounded(values(2, 64)), (2, 64)),
    "nvfp4": (lambda: nvfp4.rounded(values(2, 64), nvfp4.global_scale(values(2, 64))), (2, 64)),
    "kv": (
        lambda: kv.scatter(kv.pack_page(kv.quantize(values(3, 2, 512))), ids(4), kv.quantize(values(4, 512)), 2),
        (3, 1728),
    ),
    "index entries": (lambda: index_entry.rounded_fp4(index_entry.rounded_fp8(values(2, 128))), (2, 128)),
    "swizzle": (lambda: swizzle.unswizzle(swizzle.swizzle(values(130, 5)), 130, 5), (130, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_operation(name: str) -> None:
    run, shape = CASES[name]
    result = run()
    assert result.device == META and tuple(result.shape) == shape
