"""The model on kernels and on oracles: each operation on the same values, and whole steps.

A linear of exact products rounds its f32 sum to BF16 as the oracle does; sums in another order move a rounding now and
then. Logits are rounded to BF16: 2^-9 of their size at most, in the mean square a third of that, halved. Where an input
is stored in fewer bits, a moved rounding may give the neighbouring code, so there only operations are compared: from
layer to layer one code more or less grows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model import packs
from model.checkpoint import convert, random_tensors, write
from model.config import Config
from model.forward import Model
from model.kernels import functions, linears, packing
from model.kernels.inputs import Input
from model.ops import Ops
from model.weights import Quantised
from tests.model.kernels.bench import bound, diff, emulated, opened, side_by_side

TOKENS = 70
"""More than 4 x index_topk, so that the indexer has to choose."""
LIMIT = 4e-6
"""BF16 keeps 8 bits: (2^-9)^2 is 3.8e-6."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer with an indexer, and a draft block."""
    config = replace(Config.load("tiny").with_ratios(4), mtp_ratios=(0,))
    return write(tmp_path_factory.mktemp("small"), config, random_tensors(config, 5), "native")


def ids(count: int) -> torch.Tensor:
    return torch.randint(0, 512, (count,), generator=torch.Generator().manual_seed(7))


def compared(folder: Path, arch: str, precision: str, stored: Any) -> tuple[dict[str, float], Ops]:
    """The largest difference of each operation in a step of two tokens behind a prompt."""
    config, weights = opened(folder, precision)
    ops, oracles = bound(arch, emulated(arch), config, weights, stored), Ops.oracles(stored=stored)
    model = Model(config, weights, oracles, dtype=torch.bfloat16)
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    model.prefill(cache, [sequence], [ids(TOKENS)])
    found: dict[str, float] = {}
    model.ops = side_by_side(ops, oracles, found)
    streams = model.decode_streams(cache, [sequence], ids(2)[None]).flatten(0, 1)
    model.logits(streams)
    model.ops.mtp_combine(streams, streams[:, 1].contiguous(), weights.mtp, config)
    return found, ops


@pytest.mark.parametrize(
    ("arch", "precision", "stored"),
    [("sm90", "nvfp4_full", "plain"), ("sm90", "native", "fp8"), ("sm100", "nvfp4_full", "nvfp4")],
)
def test_each_operation_on_the_same_values(arch: str, precision: str, stored: Any, folder: Path) -> None:
    found, ops = compared(folder, arch, precision, stored)
    assert set(found) == set(ops.kernels) and len(found) >= 7 and ("mhc_pre" in found) == (stored != "plain")
    assert max(found.values()) < LIMIT, found
    linears = {"qkv_projection", "index_queries", "output_projection", "shared_expert", "logits", "mtp_combine"}
    in_pytorch = {row.op for row in ops if "linears in PyTorch" in row.why}
    assert in_pytorch == ({"logits"} if precision == "native" else set()) and linears <= set(ops.kernels)
    assert ops.packed_nbytes > 0


def _no_alpha(weight: Any) -> Any:
    assert isinstance(weight, Quantised)
    return weight.form, packing.linear.Weight(weight.data, weight.scales, None)


@pytest.mark.parametrize(
    ("module", "name", "wrong", "stored", "shows"),
    [
        (packing, "as_given", _no_alpha, "plain", {"qkv_projection", "output_projection", "logits"}),
        (functions, "rope", lambda x, *a, **k: x, "plain", {"index_queries", "output_projection"}),
        (packs, "GLOBAL_SCALE", 2.0**-14, "nvfp4", {"mhc_pre", "shared_expert", "logits"}),
    ],
)
def test_the_limit_rejects_mistakes(
    module: Any,
    name: str,
    wrong: Any,
    stored: Any,
    shows: set[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    oracles = Ops.oracles(stored=stored)
    config, weights = opened(folder, "nvfp4_full")
    model = Model(config, weights, oracles, dtype=torch.bfloat16)
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    model.prefill(cache, [sequence], [ids(TOKENS)])
    monkeypatch.setattr(module, name, wrong)
    ops = bound("sm90", emulated("sm90"), config, weights, stored)
    found: dict[str, float] = {}
    model.ops = side_by_side(ops, oracles, found)
    model.decode(cache, [sequence], ids(1)[None])
    assert {op for op, value in found.items() if value > LIMIT} >= shows, found


def test_a_prompt_and_steps_of_the_exact_linears_agree_to_bf16(folder: Path) -> None:
    config, weights = opened(folder, "nvfp4_full")
    backend = emulated("sm90")
    results, tokens = [], []
    for ops in (Ops.oracles(), bound("sm90", backend, config, weights)):
        model = Model(config, weights, ops, dtype=torch.bfloat16)
        cache = model.new_cache(1, 256)
        sequence = cache.open()
        rows = [model.prefill(cache, [sequence], [ids(5)])]
        for _ in range(2):
            rows.append(model.decode(cache, [sequence], rows[-1].argmax(-1)[:, None])[:, 0])
        results.append(torch.cat(rows))
        tokens.append(results[-1].argmax(-1).tolist())
    assert diff(results[1], results[0]) < 3 * LIMIT and tokens[0] == tokens[1]
    assert float((results[1] - results[0]).abs().amax()) < 2.0**-6 * float(results[0].abs().amax())


def test_a_step_launches_kernels_waits_for_nothing_and_packs_once(folder: Path) -> None:
    config, weights = opened(folder, "nvfp4_full")
    backend = emulated("sm90")
    ops = bound("sm90", backend, config, weights)
    model = Model(config, weights, ops, dtype=torch.bfloat16)
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    model.decode(cache, [sequence], ids(1)[None])
    packed = ops.packed_nbytes
    with backend.count() as counters:
        model.decode(cache, [sequence], ids(1)[None])
    assert ops.packed_nbytes == packed > 0
    linears = [name for name in counters.kernels if "inear" in name]
    assert len(linears) == 2 + 2 + 2 + 1 and len(counters.kernels) == len(linears) + 2 + 1 + 1
    assert counters.syncs == 0 and counters.compiles == 0


def test_linears_of_many_tokens() -> None:
    (weight,) = convert.to_nvfp4(torch.randn(40, 256, generator=torch.Generator().manual_seed(2)) / 16)
    both = (weight, weight)
    made = packs.Bound(emulated("sm90"))
    x = torch.randn(37, 256, generator=torch.Generator().manual_seed(3)).bfloat16()
    exact, dense = linears.Exact(made), linears.Dense(made)
    given = Input(made, x)
    assert diff(exact.one(given, weight), dense.one(given, weight)) < LIMIT
    for mine, theirs in zip(exact.several(given, *both), dense.several(given, *both), strict=True):
        assert mine.shape == (37, 40) and diff(mine, theirs) < LIMIT
    grouped = Input(made, x[:, :256].repeat(1, 2))
    assert diff(exact.grouped(grouped, weight, 2), dense.grouped(grouped, weight, 2)) < LIMIT


def test_packing_names_what_it_cannot_hold() -> None:
    held = packs.Packs()
    with pytest.raises(ValueError, match="the weight is torch.float32; allowed: a quantised one"):
        packing.exact(held, torch.zeros(4, 4))
    weight = Quantised("fp8", torch.zeros(128, 128, dtype=torch.uint8), torch.full((1, 1), 127, dtype=torch.uint8))
    with pytest.raises(ValueError, match="128 rows in 2 groups; allowed: whole groups, of FP8 in multiples of 128"):
        packing.exact(held, weight, groups=2)
    assert held.nbytes == 0
    first = packing.exact(held, weight)
    assert packing.exact(held, weight) is first and held.nbytes == first.data.nbytes + 4
    assert packing.exact(held, weight, weight).parts == (128, 128) and held.nbytes > 2 * first.data.nbytes
