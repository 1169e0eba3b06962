"""Block-scaled linears: NVFP4 tokens times NVFP4 weights, y = alpha g x w^T, one weight, several of one x, or groups.

x (m, k) BF16, for a grouped linear (m, g, k), which the stage quantises; w_i (n_i, k); y (m, n) BF16, of several
weights side by side. `y` is judged against the products of the quantised values, `y_ideal` (the same tensor) against
those of the unquantised tokens. Fields of a case: m, n, k and those of stages/shared/linears.py, and with defaults: op
linear (or multi, grouped), data biased (or outliers, small, nan), room 0 (bytes behind each row of codes), and fields
of LinearSm100Config: swapped, tokens, rows_a_tile, stages, split, ctas.
Not proven here: the quantisation of x, speed.
"""

from __future__ import annotations

from typing import Any

import torch

import oracles.linear
from kernels.linear import PackedSm100, grouped_linear, linear, multi_linear, pack_sm100, sm100_names
from kernels.linear.sm100_host import config_for
from stages.shared import block_scaled, linears
from stages.shared.linears import Tensors

OPS = {"linear": linear, "multi": multi_linear, "grouped": grouped_linear}


def op(case: Any) -> str:
    """Which linear the case asks for."""
    name = case.get("op", "linear")
    if name not in OPS:
        raise ValueError(f"op={name!r}; allowed: {', '.join(OPS)}")
    return name


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """x, its codes, scales and global scale; the weights as a checkpoint has them (codes0, scales0, alpha0, ...), and
    as ``pack_sm100`` lays them out (w_codes, w_scales, alpha)."""
    weights, named = [], {}
    for index, n in enumerate(linears.rows_of(case)):
        w = 0.02 * torch.randn(n, case.k, generator=rng) + 0.002
        weight = linears.quantised(case, torch.where(torch.rand(w.shape, generator=rng) < 1 / 64, 8 * w, w), index)
        weights.append(weight)
        named |= {f"codes{index}": weight.codes, f"scales{index}": weight.scales, f"alpha{index}": weight.alpha}
    packed = pack_sm100(weights, grouped=op(case) == "grouped")
    shape = (case.m, len(weights), case.k) if packed.grouped else (case.m, case.k)
    return named | block_scaled.tokens(case, shape, rng) | block_scaled.packed_tensors(packed)


def settings(case: Any) -> dict[str, Any]:
    """What the case says of the kernel's configuration."""
    found = {name: case[name] for name in ("swapped", "tokens", "stages", "split", "ctas") if name in case}
    return found | ({"rows": case["rows_a_tile"]} if "rows_a_tile" in case else {})


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel on quantised tokens and packed weights."""
    packed = block_scaled.packed_of(x, case, tuple(linears.rows_of(case)), grouped=op(case) == "grouped")
    y = OPS[op(case)](block_scaled.quantised(x), packed, backend=backend, kernel=mutant, **settings(case))
    return linears.both({"y": torch.cat(y, dim=1) if isinstance(y, list) else y})


def names(case: Any) -> dict[str, Any]:
    """Tensor memory, warps and barriers by name, for views."""
    nothing = torch.empty(0, dtype=torch.uint8)
    parts, grouped = tuple(linears.rows_of(case)), op(case) == "grouped"
    packed = PackedSm100(nothing, nothing, nothing, parts, case.k, grouped)
    return sm100_names.names(config_for(op(case), packed, case.m, settings=settings(case)))


def products(x: torch.Tensor, weights: list[torch.Tensor], case: Any) -> torch.Tensor:
    """y in the wider of the dtypes."""
    if op(case) == "grouped":
        return torch.stack([x[:, g].to(w.dtype) @ w.T for g, w in enumerate(weights)], dim=1)
    return torch.cat([oracles.linear.linear(x, w, dtype=w.dtype) for w in weights], dim=1)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Products in fp64."""
    given = block_scaled.x_values(x) if kind == "simulated" else x["x"]
    return linears.both({"y": linears.finished(products(given, linears.values(x, case), case), kind)})


def plain(x: Tensors, case: Any) -> Tensors:
    """Products of BF16 matrices."""
    weights = [w.bfloat16() for w in linears.values(x, case)]
    return linears.both({"y": products(block_scaled.x_values(x).bfloat16(), weights, case)})


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The products with one known mistake each."""
    if case.m == 0:
        return {}
    given, weights = block_scaled.x_values(x), linears.values(x, case)
    found = {name: products(given, w, case) for name, w in linears.weight_mistakes(x, case).items()}
    found |= {name: products(changed, weights, case) for name, changed in block_scaled.token_mistakes(x, case).items()}
    right = products(given, weights, case)
    if op(case) == "multi":
        # every weight is scaled by the first one's alpha: look at place() in kernels/linear/sm100.py
        first = x["alpha0"].double()
        parts = right.split(linears.rows_of(case), dim=1)
        wrong_parts = [y * (first / x[f"alpha{i}"].double()) for i, y in enumerate(parts)]
        found["alpha_of_first"] = torch.cat(wrong_parts, dim=1)
    if op(case) == "grouped":
        # every group reads the first one's tokens: look at group()
        found["x_of_first_group"] = products(given[:, :1].expand_as(given), weights, case)
        # the outputs of the groups lie one after the other instead of token by token: look at place()
        found["groups_before_tokens"] = right.transpose(0, 1).reshape(right.shape)
    return {name: linears.both({"y": y}) for name, y in found.items()}
