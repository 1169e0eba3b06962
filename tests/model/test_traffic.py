"""Bytes of a step: the published totals of V4-Flash, and what changes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from model.cache import Cache
from model.config import Config
from model.forward import Model
from model.traffic import step_traffic
from model.weights import Quantised, Weight, Weights, assemble, specs


@dataclass
class Meta:
    """Weights in the native format without a byte of memory."""

    config: Config

    def weight(self, name: str) -> Weight:
        n, k = specs(self.config)[name].shape
        if specs(self.config)[name].role != "linear":
            return self.plain(name)
        return Quantised("fp8", _empty(n, k), _empty(-(-n // 128), -(-k // 128)))

    def plain(self, name: str) -> torch.Tensor:
        spec = specs(self.config)[name]
        dtype = {"wide": torch.float32, "table": torch.int64}.get(spec.role, torch.bfloat16)
        return torch.empty(spec.shape, dtype=dtype, device="meta")

    def experts(self, prefix: str) -> tuple[Weight, Weight, Weight]:
        d, width, count = self.config.hidden_size, self.config.moe_intermediate_size, self.config.n_routed_experts
        shapes = ((width, d), (width, d), (d, width))
        w1, w3, w2 = (Quantised("mxfp4", _empty(count, n, k // 2), _empty(count, n, k // 32)) for n, k in shapes)
        return w1, w3, w2


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.uint8, device="meta")


@pytest.fixture(scope="module")
def flash() -> tuple[Config, Weights]:
    config = Config.load("flash")
    # a layer of each kind; specs of all 43 would only repeat them
    config = replace(config, ratios=(0, 4, 128, 4), num_hidden_layers=4, num_hash_layers=2)
    return config, assemble(config, Meta(config), True)


def cache(config: Config, carry: str, mtp: bool = False) -> Cache:
    return Cache(
        config, sequences=1, tokens=8192, entries="fp8", carry=carry, mtp=mtp, dtype=torch.bfloat16, device="meta"
    )


# MB of one layer of Flash by module; experts: 6 of them
LAYER = 4.195 + 33.556 + 2.097 + 33.556 + 33.556 + 2.098 + 6 * 13.369 + 25.167 + 3.146
CSA = 16.795 + 8.389 + 4.723
HCA = 8.652


def test_weights_of_a_token_are_the_published_bytes(flash) -> None:
    config, weights = flash
    whole = step_traffic(replace(weights, mtp=None), config, cache(config, "projected"), 1024)
    wanted = 1e6 * (4 * LAYER + 2 * CSA + HCA + 1059.1)
    assert whole.weights == pytest.approx(wanted, rel=2e-3)
    deferred = step_traffic(replace(weights, mtp=None), config, cache(config, "hidden"), 1024)
    index = 4 * 256 * 4096 / 1e6  # wkv and wgate of the index compressor, BF16: part of the 4.723
    saved = 2 * (16.795 + index) * 3 / 4 + HCA * 127 / 128
    assert whole.weights - deferred.weights == pytest.approx(1e6 * saved, rel=1e-2)


def test_drafts_read_the_block_the_head_again_and_more_experts(flash) -> None:
    config, weights = flash
    held = cache(config, "projected", mtp=True)
    one = step_traffic(replace(weights, mtp=None), config, held, 1024).weights
    two = step_traffic(weights, config, held, 1024, drafts=1).weights
    experts = 256 * (1 - (1 - 6 / 256) ** 2) - 6
    block = LAYER + experts * 13.369 + 2 * 4096 * 4096 / 1e6
    assert two - one == pytest.approx(1e6 * (4 * experts * 13.369 + 1059.1 + block), rel=2e-3)


def test_cached_bytes_follow_the_length(flash) -> None:
    config, weights = flash
    held = cache(config, "projected")
    read = {n: step_traffic(weights, config, held, n).read for n in (0, 1, 128, 1024, 2048, 4096)}
    entry = 37440 / 64
    assert read[1] - read[0] == pytest.approx(4 * 584, rel=0.03)
    # 32 entries in each CSA layer, one in the HCA layer
    assert read[128] - read[0] == pytest.approx((4 * 128 + 2 * 32 + 1) * 584, rel=0.03)
    # at 2048 tokens all 512 entries are taken without scoring; beyond, the index is read and no more entries
    assert read[2048] - read[1024] == pytest.approx((2 * 256 + 8) * entry, rel=0.03)
    assert read[4096] - read[2048] == pytest.approx(2 * 1024 * 132 + 16 * 864, rel=0.03)


def test_parts_are_shared_among_the_tokens_of_a_step(model: Model) -> None:
    held = model.new_cache(1, 256)
    found = step_traffic(replace(model.weights, mtp=None), model.config, held, 100)
    shared = found.per_token(2.0)
    assert shared["total"] == pytest.approx((found.weights + found.read + found.written) / 2)
    assert min(shared.values()) > 0
