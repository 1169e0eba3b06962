"""The known mistakes of a stage: which of them the limits reject, and which one a failing output looks like."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gate import hints
from gate.compare import measure, nonfinite, rounded
from gate.limits import Reference, judge_output
from gate.result import LooksLike
from gate.stage import Stage, Stop, Tensors

# A variant is named as the cause when the output is this many times nearer to it than to the oracle.
_NEARER = 10


def wrong(stage: Stage, inputs: Tensors, references: dict[str, Reference]) -> dict[str, Tensors]:
    """The outputs of wrong(x, case), by variant, in the promised dtypes; what a variant leaves out is right."""
    variants = stage.call("wrong", inputs, stage.case)
    if not isinstance(variants, Mapping):
        raise Stop("contract_error", f"{stage.file}: wrong() must return a dict, returned {type(variants).__name__}")
    cast: dict[str, Tensors] = {}
    for variant, outputs in variants.items():
        stage.checked(f"wrong()['{variant}'] of wrong", outputs)
        unknown = sorted(set(outputs) - set(references))
        if unknown:
            text = f"wrong()['{variant}'] has output {', '.join(unknown)}, which oracle() has not"
            raise Stop("contract_error", f"{stage.file}: {text}")
        cast[variant] = {name: rounded(t, references[name].plain.dtype) for name, t in outputs.items()}
    return cast


def statuses(variants: dict[str, Tensors], references: dict[str, Reference]) -> dict[str, str]:
    """What the limits say of every variant; `pass` means that this case is blind to it."""
    found = {}
    for variant, outputs in variants.items():
        verdicts = [judge_output(t, references[name], explain=False).status for name, t in outputs.items()]
        found[variant] = next((status for status in verdicts if status != "pass"), "pass")
    return found


def looks_like(
    stage: Stage, variants: dict[str, Tensors], outputs: Tensors, references: dict[str, Reference], failed: list[str]
) -> LooksLike | None:
    """The variant nearest to the outputs named in `failed`; None if no variant has any of them in the same shape."""
    near = {}
    for variant, tensors in variants.items():
        shared = [name for name in failed if name in tensors and tensors[name].shape == outputs[name].shape]
        if shared:
            near[variant] = max(_distance(outputs[name], tensors[name]) for name in shared)
    if not near:
        return None
    order = sorted(near, key=lambda variant: near[variant])
    best, second = order[0], order[1] if len(order) > 1 else None
    own = max(_distance(outputs[name], references[name].want) for name in failed)
    hint = hints.find(stage.root / stage.file, best)
    return LooksLike(
        variant=best,
        diff=near[best],
        equal=near[best] <= own / _NEARER,
        next=second,
        next_diff=near[second] if second else None,
        hint=hint[1] if hint else None,
        place=f"{stage.file}:{hint[0]}" if hint else None,
    )


def _distance(got: Tensor, other: Tensor) -> float:
    """diff of two outputs, 1 where their NaN and infinities lie elsewhere."""
    share = float(nonfinite(got, other).double().mean()) if got.numel() else 0.0
    return max(measure(got, other).diff, share)
