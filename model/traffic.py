"""Bytes that a decode step must move, from the weights and caches as they are: the floor of its time is this over the
bandwidth of the memory.

Counted once for each step of T tokens of one sequence (T = 1, or 1 + drafts), at a given length n:

    weights   every matrix, norm and vector of the layers and of the head, as stored, with these exceptions:
              routed experts        the expected number of different ones, E (1 - (1 - k/E)^T), of E
              compressors           T/m of their bytes with a "hidden" carry (projected once for each window), all of
                                    them with a "projected" one; never more than all
              embedding             T rows       table of a hash layer   T rows
              draft block           its bytes for each draft, and the head once more for each draft; only with drafts
    read      window rows min(n, 128); HCA n/128 entries; CSA min(index_topk, n/4) entries and, where that leaves some
              out, n/4 index rows; what the open windows wait with: (slots/m) T rows of the carry
    written   T rows of each window and carry, T/m entries and index rows

Activations are not counted: they stay in caches of the chip. A kernel that reads more than this is not at the floor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from model.cache import Cache, LayerCache, Rows
from model.config import Config
from model.weights import Weights


@dataclass(frozen=True)
class Traffic:
    """Bytes of one step."""

    weights: float
    read: float
    written: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.read + self.written

    def per_token(self, tokens: float) -> dict[str, float]:
        """The same shared among the tokens that a step gives."""
        return {name: value / tokens for name, value in (asdict(self) | {"total": self.total}).items()}


def step_traffic(weights: Weights, config: Config, cache: Cache, length: int, *, drafts: int = 0) -> Traffic:
    """Bytes of a step at `length` tokens in the cache that takes 1 + drafts tokens of one sequence."""
    tokens = 1 + drafts
    read = written = 0.0
    for i, layer in enumerate(cache.layers):
        ratio = (*config.ratios, *config.mtp_ratios)[i]
        runs = 1 if i < len(config.ratios) else drafts
        r, w = _layer(layer, ratio, config, length, tokens)
        read, written = read + runs * r, written + runs * w
    return Traffic(_weights(weights, config, cache.carry_form == "hidden", drafts), read, written)


def _weights(weights: Weights, config: Config, deferred: bool, drafts: int) -> float:
    tokens, k, count = 1 + drafts, config.num_experts_per_tok, config.n_routed_experts
    distinct = 1.0 - (1.0 - k / count) ** tokens
    total = 0.0
    for path, weight in weights.tensors():
        ratio = config.ratios[int(path[7 : path.index("]")])] if path.startswith("layers[") else 0
        part = path.rpartition(".")[2]
        nbytes = float(weight.nbytes)
        if path == "embed" or (part == "table" and ".moe." in path):
            nbytes *= tokens / weight.shape[0]
        elif ".moe." in path and part in ("w1", "w3", "w2"):
            nbytes *= distinct
        elif ".compressor." in path and deferred:
            nbytes *= min(1.0, tokens / ratio)
        elif path == "head":
            nbytes *= 1 + drafts
        total += nbytes * (drafts if path.startswith("mtp.") else 1)
    return total


def _layer(layer: LayerCache, ratio: int, config: Config, length: int, tokens: int) -> tuple[float, float]:
    """Bytes read and written in the cache of one layer."""
    window = _row(layer.window)
    read, written = min(length, config.sliding_window) * window, tokens * window
    if not ratio or layer.entries is None:
        return read, written
    entries = length // ratio
    shown = min(entries, config.index_topk) if layer.index is not None else entries
    read += shown * _row(layer.entries)
    written += tokens / ratio * _row(layer.entries)
    if layer.index is not None:
        read += entries * _row(layer.index) if entries > config.index_topk else 0.0
        written += tokens / ratio * _row(layer.index)
    for carry in (layer.carry, layer.index_carry):
        if carry is not None:
            read += (2 if ratio == 4 else 1) * tokens * _row(carry)
            written += tokens * _row(carry)
    return read, written


def _row(rows: Rows) -> float:
    """Bytes of a row, its share of the page's scales and padding included."""
    return rows.page_bytes / rows.per_page
