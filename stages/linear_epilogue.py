"""Block-scaled linears that end in more than a rounding: quantisation, SwiGLU, rotary embedding, in the same launch.

    ending  quantise  y = alpha g x w^T as NVFP4 or FP8
            swiglu    h = silu(min(gate, limit)) clamp(up, -limit, limit) of two weights, as BF16, NVFP4 or FP8
            rotate    the last `width` outputs of every head by the angles of the token, as BF16

Outputs: codes and scales, exact, against the composition of fp64 product and pass, rounded once to fp32; `y`, read from
them, in units of the global scale; or `y` itself. What a pass over BF16 outputs gives differs by that rounding. Tokens
are taken as they are quantised. Fields of a case: m, n, k, ending, and with defaults: store bf16 (or nvfp4, fp8), with
atoms false (scales in atoms), block 128, scale ue8m0; limit 10; head 512, width 64, inverse false; data biased (or
exact: every sum is an fp32 number, many outputs are ties; or nan); ctas.
Not proven here: codes of outputs that the fp32 sum may bring across a midpoint (such inputs are not drawn); speed.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from kernels.linear import Quantise, Rotate, Swiglu, Weight, linear, pack_sm100
from oracles import rope
from oracles.experts import swiglu
from oracles.formats import e2m1, nvfp4, swizzle
from stages.shared import block_scaled, linears, passes
from stages.shared.linears import Tensors

UNIT = 2.0**-5
"""Global scale of the weights of exact data."""
SUM, STEP = 2.0**-24, 2.0**-20
"""What a sum may lose, of the sum of magnitudes, and what the steps behind it may lose of an output."""
DRAWS = 50


class Form(dict[str, Any]):
    """What stages.shared.passes is told of the outputs."""

    @property
    def m(self) -> int:
        """Rows."""
        return self["m"]


def form(case: Any) -> Form:
    """How the outputs are stored."""
    found = Form(m=case.m, format=case.get("store", "bf16"))
    if found["format"] == "fp8":
        return Form(found | {"block": case.get("block", 128), "scale": case.get("scale", "ue8m0")})
    return Form(found | {"swizzled": case.get("atoms", False)})


def stored(case: Any) -> bool:
    """Whether the outputs are quantised."""
    return form(case)["format"] != "bf16"


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """Tokens and weights; the global scale of the outputs (to), or angles. Drawn again while an output lies so near a
    midpoint of its format that the rounding of sums may decide its code."""
    for _ in range(DRAWS):
        found = drawn(case, rng)
        if not stored(case) or _exact(case) or settled(found, case):
            return found
    raise ValueError(f"{case.id}: {DRAWS} draws have an output beside a midpoint; fewer outputs, please")


def settled(x: Tensors, case: Any) -> bool:
    """Whether outputs that differ by what fp32 may lose have the same codes and scales."""
    lost = [SUM * y for y in products(x, case, magnitudes=True)]
    near = []
    for *signs, last in itertools.product((-1, 1), repeat=len(lost) + 1):
        moved = [y + sign * e for y, sign, e in zip(products(x, case), signs, lost, strict=True)]
        y = ended(moved, x, case) * (1 + last * STEP)
        near.append(passes.encoded(y.float(), x.get("to"), form(case)))
    return all(torch.equal(other[name], near[0][name]) for other in near[1:] for name in other)


def drawn(case: Any, rng: torch.Generator) -> Tensors:
    """One draw of the inputs."""
    weights = [_weight(case, index, rng) for index in range(2 if case.ending == "swiglu" else 1)]
    found: Tensors = {}
    for index, w in enumerate(weights):
        found |= {f"codes{index}": w.codes, f"scales{index}": w.scales, f"alpha{index}": w.alpha}
    found |= block_scaled.packed_tensors(pack_sm100(weights, interleaved=len(weights) == 2))
    found |= _exact_tokens(case, rng) if _exact(case) else block_scaled.tokens(case, (case.m, case.k), rng)
    if case.ending == "rotate":
        angles = rope.angles(7 * torch.arange(case.m) + 3, rope.frequencies(case.get("width", 64)))
        found |= {name: a.float() for name, a in zip(("cos", "sin"), angles, strict=True)}
    if form(case)["format"] == "nvfp4":
        g = nvfp4.global_scale(outputs_of(found, case).float().nan_to_num(0.0))
        found["to"] = torch.exp2(g.log2().ceil()) if _exact(case) else g
    return found


def _exact(case: Any) -> bool:
    return case.get("data", "biased") == "exact"


def _grid(shape: tuple[int, int], rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of values of E2M1 under scales of 1: products add up without rounding."""
    values = e2m1.decode(torch.randint(0, 16, shape, generator=rng).to(torch.uint8))
    values[:, ::16] = 6.0
    return nvfp4.quantize(values, torch.ones(()))


def _exact_tokens(case: Any, rng: torch.Generator) -> Tensors:
    codes, scales = _grid((case.m, case.k), rng)
    one = torch.ones(())
    x = nvfp4.dequantize(codes, scales, one).bfloat16()
    return {"x": x, "x_codes": codes, "x_scales": swizzle.swizzle(scales), "g": one}


def _weight(case: Any, index: int, rng: torch.Generator) -> Weight:
    if _exact(case):
        return Weight(*_grid((case.n, case.k), rng), torch.tensor(UNIT))
    w = 0.02 * torch.randn(case.n, case.k, generator=rng) + 0.002
    return linears.quantised({}, torch.where(torch.rand(w.shape, generator=rng) < 1 / 64, 8 * w, w), index)


def ending(x: Tensors, case: Any) -> Quantise | Swiglu | Rotate:
    """The epilogue of the case."""
    if case.ending == "rotate":
        return Rotate(x["cos"], x["sin"], case.get("head", 512), case.get("inverse", False))
    how = dict(form(case))
    del how["m"]
    store = Quantise(global_scale=x.get("to"), **how) if stored(case) else None
    if case.ending == "swiglu":
        return Swiglu(limit(case), store)
    if case.ending != "quantise" or store is None:
        raise ValueError(f"ending={case.ending!r}; allowed: quantise (with store), swiglu, rotate")
    return store


def limit(case: Any) -> float | None:
    """The limit of the case; 0 says none."""
    return case.get("limit", 10.0) or None


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """The kernel."""
    both = case.ending == "swiglu"
    packed = block_scaled.packed_of(x, case, ((2 if both else 1) * case.n,), interleaved=both)
    settings = {"epilogue": ending(x, case), "ctas": case.get("ctas")}
    found = linear(block_scaled.quantised(x), packed, **settings, backend=backend, kernel=mutant)
    return passes.named(found) if stored(case) else {"y": found}


def values(outputs: Tensors, case: Any) -> Tensors:
    """y over the global scale: the numbers that codes and scales stand for."""
    return {"y": passes.decoded(outputs, torch.ones(()), form(case)) if stored(case) else outputs["y"]}


def products(x: Tensors, case: Any, magnitudes: bool = False) -> list[torch.Tensor]:
    """What the linears give, fp64; or the sums of the magnitudes of what they add."""
    given = block_scaled.x_values(x)
    weights = [
        nvfp4.dequantize(x[f"codes{i}"], x[f"scales{i}"], x[f"alpha{i}"])
        for i in range(2 if case.ending == "swiglu" else 1)
    ]
    return [given.abs() @ w.abs().T if magnitudes else given @ w.T for w in weights]


def outputs_of(x: Tensors, case: Any) -> torch.Tensor:
    """The outputs before they are stored, fp64."""
    return ended(products(x, case), x, case)


def ended(made: list[torch.Tensor], x: Tensors, case: Any) -> torch.Tensor:
    """What the end of the linear makes of its products."""
    if case.ending == "swiglu":
        return swiglu(*made, limit=limit(case))
    return turned(made[0], x, case) if case.ending == "rotate" else made[0]


def turned(y: torch.Tensor, x: Tensors, case: Any, **changed: Any) -> torch.Tensor:
    """Every head of y by the angles; `changed` replaces cos, sin or inverse."""
    use = {"cos": x["cos"], "sin": x["sin"], "inverse": case.get("inverse", False)} | changed
    heads = y.unflatten(-1, (-1, case.get("head", 512)))
    return rope.rotate(heads, use["cos"][:, None], use["sin"][:, None], inverse=use["inverse"]).flatten(1)


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """The composition of product and pass."""
    y = outputs_of(x, case)
    if stored(case):
        return passes.composed(y.float(), x.get("to"), form(case), kind)
    return {"y": linears.finished(y, kind)}


def plain(x: Tensors, case: Any) -> Tensors:
    """The same by torch."""
    return oracle(x, case, "simulated") if stored(case) else {"y": outputs_of(x, case).bfloat16()}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """The outputs with one known mistake each."""
    if case.m == 0:
        return {}
    made = products(x, case)
    changed = {
        # the weight's global scale is dropped: look at outputs() in kernels/linear/sm100_epilogues.py
        "alpha_dropped": outputs_of(x | {f"alpha{i}": torch.ones(()) for i in range(len(made))}, case),
    }
    if case.ending == "rotate":
        changed |= _rotations(made[0], x, case)
    if case.ending == "swiglu":
        changed |= _activations(*made, case)
    if not stored(case):
        return {name: {"y": y} for name, y in changed.items()}
    found = passes.mistakes(outputs_of(x, case).float(), x.get("to"), form(case))
    # the outputs are rounded to BF16 before they are quantised
    changed["bf16_between"] = outputs_of(x, case).bfloat16()
    found |= {name: passes.encoded(y.float(), x.get("to"), form(case)) for name, y in changed.items()}
    return passes.with_values(found, torch.ones(()), form(case))


def _rotations(y: torch.Tensor, x: Tensors, case: Any) -> dict[str, torch.Tensor]:
    width = 2 * x["cos"].shape[1]
    halves = y.unflatten(-1, (-1, case.get("head", 512))).clone()
    halves[..., -width:] = halves[..., -width:].unflatten(-1, (2, width // 2)).transpose(-1, -2).flatten(-2)
    back = turned(halves.flatten(1), x, case).unflatten(-1, (-1, case.get("head", 512)))
    back[..., -width:] = back[..., -width:].unflatten(-1, (width // 2, 2)).transpose(-1, -2).flatten(-2)
    return {
        # not turned at all
        "not_turned": y,
        # pairs (i, i + width / 2) instead of neighbours: look at turned()
        "half_split": back.flatten(1),
        # the other direction
        "other_direction": turned(y, x, case, inverse=not case.get("inverse", False)),
        # the angles of the token before: look at put_group()
        "angles_of_neighbour": turned(y, x, case, cos=x["cos"].roll(1, 0), sin=x["sin"].roll(1, 0)),
        # the first outputs of a head instead of the last
        "first_outputs": turned(y.flip(-1), x, case).flip(-1),
    }


def _activations(gate: torch.Tensor, up: torch.Tensor, case: Any) -> dict[str, torch.Tensor]:
    mixed = torch.stack((gate, up), dim=-1).flatten(1)
    return {
        # gate and up change places: look at outputs()
        "up_activated": swiglu(up, gate, limit=limit(case)),
        # the rows are taken for all of gate, then all of up
        "halves_for_pairs": swiglu(*mixed.chunk(2, dim=1), limit=limit(case)),
        # no limits
        "clamp_missing": swiglu(gate, up, limit=None),
    }
