"""Limits applied to one output: allowed next to measured, which limits fail, which elements are wrong and where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gate import where
from gate.compare import Measures, all_zero, errors, kinds, measure, nonfinite, rms, rounded, unravel, wide
from gate.result import OutputResult

# An element counts as wrong when its error is this many times what the limit allows as an rms: four sigmas.
_SIGMAS = 4.0


@dataclass(frozen=True)
class Verdict:
    """What the limits say of one output; `status` is `pass` or a rejection."""

    status: str
    message: str | None
    result: OutputResult


@dataclass(frozen=True)
class Reference:
    """What an output is judged by.

    want: the oracle (fp64 or exact integers). plain: the same by plain torch; its dtype is the promised one. limits:
    the entry of gates.yaml.
    """

    name: str
    want: Tensor
    plain: Tensor
    limits: dict[str, Any]

    def losses(self, dtype: torch.dtype) -> tuple[float | None, float]:
        """(diff of plain torch, diff of rounding the oracle to `dtype`); None where plain torch is not finite."""
        floor = measure(rounded(self.want, dtype), self.want).diff
        if bool(nonfinite(self.plain, self.want).any()):
            return None, floor
        return measure(self.plain, self.want).diff, floor


def judge_output(got: Tensor, reference: Reference, *, explain: bool = True) -> Verdict:
    """Shape, dtype, positions of NaN and infinities, then every limit. `explain=False` leaves out where and the map."""
    want, name = reference.want, reference.name
    result = OutputResult(shape=list(got.shape), dtype=str(got.dtype).removeprefix("torch."))
    if got.shape != want.shape:
        return Verdict("wrong_shape", f"{name} has shape {_shape(got)}, oracle {_shape(want)}", result)
    if got.dtype != reference.plain.dtype:
        promised = str(reference.plain.dtype).removeprefix("torch.")
        return Verdict(
            "wrong_dtype", f"{name} is {result.dtype}, promised is {promised} (the dtype of plain())", result
        )
    bad = nonfinite(got, want)
    if bool(bad.any()):
        return _not_finite(got, reference, bad, result, explain)
    measures = measure(got, want)
    torch_loss, floor = reference.losses(got.dtype)
    allowed = _allowed(reference.limits, torch_loss, floor)
    failed = [key for key, limit in allowed.items() if not _holds(key, limit, measures)]
    zero = all_zero(got) and not all_zero(want)
    result = result.model_copy(
        update={
            **vars(measures),
            "torch": torch_loss,
            "rounding": floor,
            "allowed": allowed,
            "failed": failed or (["zero"] if zero else []),
            "against": reference.limits.get("against", "ideal"),
        }
    )
    if not result.failed:
        return Verdict("pass", None, result)
    if explain:
        exact = "exact" in result.failed
        error = errors(got, rounded(want, got.dtype) if exact else want)
        result = _locate(got, want, error, error > threshold(want, result), result)
    text = f"{name} is all zero, the oracle is not" if zero else _measured_text(name, result)
    return Verdict("wrong_values", text, result)


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(str(n) for n in tensor.shape)})"


def _allowed(limits: dict[str, Any], torch_loss: float | None, floor: float) -> dict[str, float]:
    """Each limit as a number: `vs_torch` becomes a diff, `exact` becomes 0 unequal elements."""
    allowed: dict[str, float] = {}
    for key in ("diff", "vs_torch", "cos", "rel_rms", "max_abs", "exact"):
        if limits.get(key) is None:
            continue
        if key == "vs_torch":
            allowed[key] = limits[key] * max(torch_loss or 0.0, floor)
        else:
            allowed[key] = 0.0 if key == "exact" else float(limits[key])
    return allowed


def _holds(key: str, limit: float, measures: Measures) -> bool:
    if key == "exact":
        return measures.unequal == 0
    if key == "cos":
        # no cosine: fine only where both are zero
        return measures.cos >= limit if measures.cos is not None else measures.diff == 0
    return bool(getattr(measures, "diff" if key == "vs_torch" else key) <= limit)


def _measured_text(name: str, result: OutputResult) -> str:
    """`out.diff 5.8e-02, allowed 3.0e-06 (vs_torch)` for every limit that failed."""
    texts = []
    failed = list(result.failed)
    if "diff" in failed and "vs_torch" in failed:
        failed.remove(max(("diff", "vs_torch"), key=lambda key: result.allowed[key]))
    for key in failed:
        if key == "exact":
            texts.append(f"{name}: {result.unequal} elements differ, allowed 0 (exact)")
            continue
        value = getattr(result, "diff" if key == "vs_torch" else key)
        shown = "undefined" if value is None else (f"{value:.6f}" if key == "cos" else f"{value:.1e}")
        limit = f"{result.allowed[key]:g}" if key == "cos" else f"{result.allowed[key]:.1e}"
        metric, note = ("diff", " (vs_torch)") if key == "vs_torch" else (key, "")
        texts.append(f"{name}.{metric} {shown}, allowed {limit}{note}")
    return "; ".join(texts)


def _not_finite(got: Tensor, reference: Reference, bad: Tensor, result: OutputResult, explain: bool) -> Verdict:
    want = rounded(reference.want, got.dtype)
    first = unravel(int(torch.nonzero(bad.flatten())[0]), tuple(got.shape))
    at = ", ".join(str(i) for i in first)
    text = f"{reference.name} contains {kinds(got)}, oracle {kinds(want)}; first {reference.name}[{at}]"
    if explain:
        result = _locate(got, reference.want, errors(got, reference.want), bad, result)
    return Verdict("not_finite", text, result)


def threshold(want: Tensor, result: OutputResult) -> float:
    """The error from which an element counts as wrong: the tightest of the limits that failed."""
    scale = rms(want)
    bounds = {
        "diff": lambda limit: _SIGMAS * scale * math.sqrt(2 * limit),
        "cos": lambda limit: _SIGMAS * scale * math.sqrt(2 * (1 - limit)),
        "rel_rms": lambda limit: _SIGMAS * scale * limit,
        "max_abs": lambda limit: limit,
        "exact": lambda limit: 0.0,
        "zero": lambda limit: 0.0,
    }
    bounds["vs_torch"] = bounds["diff"]
    return min((bounds[key](result.allowed.get(key, 0.0)) for key in result.failed), default=0.0)


def _locate(got: Tensor, want: Tensor, error: Tensor, mask: Tensor, result: OutputResult) -> OutputResult:
    """First wrong element, worst element, and where in the units of the kernel; `mask` says which are wrong."""
    if not bool(mask.any()):
        mask = error >= error.max() / 2
    first = unravel(int(torch.nonzero(mask.flatten())[0]), tuple(got.shape))
    worst = unravel(int(error.flatten().argmax()), tuple(got.shape))
    return result.model_copy(
        update={
            "wrong": int(mask.sum()),
            "first": first,
            "first_got": float(wide(got[tuple(first)])),
            "first_want": float(wide(want[tuple(first)])),
            "worst": worst,
            "worst_got": float(wide(got[tuple(worst)])),
            "worst_want": float(wide(want[tuple(worst)])),
            "where": where.describe(mask),
            "error_map": where.error_map(mask),
        }
    )
