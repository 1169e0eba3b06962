"""Times that are kept under a name, and the verdict on a time: its limits, and the time that was kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gate.errors import UsageError
from gate.result import BenchResult
from gate.status import BENCH_TIMED

FOLDER = Path("build") / "bench"


@dataclass(frozen=True)
class Kept:
    """One time of a baseline, and what it was taken on."""

    us: float
    evidence: str


Baseline = dict[str, Kept]


def path_of(root: Path, name: str) -> Path:
    """`build/bench/NAME.json`."""
    return root / FOLDER / f"{name}.json"


def save(root: Path, name: str, results: Sequence[BenchResult]) -> Path:
    """Keep the times of this run; those of other cases under the same name stay."""
    path = path_of(root, name)
    kept = load(root, name) if path.is_file() else {}
    kept |= {result.label: Kept(result.us, result.evidence) for result in results if result.us is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({label: vars(one) for label, one in sorted(kept.items())}, indent=1) + "\n")
    temporary.replace(path)
    return path


def load(root: Path, name: str) -> Baseline:
    """The times under `name`; none if nothing was ever kept under it.

    Raises:
        UsageError: if the file is no such thing.
    """
    path = path_of(root, name)
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {str(label): Kept(float(one["us"]), str(one["evidence"])) for label, one in data.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        text = f"{path.relative_to(root)} holds no times: {type(error).__name__}: {error}"
        raise UsageError(f"{text}; --save {name} writes it anew once the file is gone") from None


def judged(result: BenchResult, baseline: Baseline | None, name: str | None, fail_slower: float) -> BenchResult:
    """The result with its verdict: every limit that is broken is named. `baseline` is None without --compare;
    `fail_slower` is in percent."""
    if result.status not in BENCH_TIMED or result.us is None or result.floor_us is None:
        return result
    broken = _limits(result, result.us, result.floor_us)
    status, kept = "too_slow" if broken else "pass", None
    if baseline is not None:
        kept = baseline.get(result.label)
        said = _compared(result, result.us, kept, str(name), fail_slower)
        if said and not (kept and kept.evidence == result.evidence) and not broken:
            status = "no_baseline"
        elif said:
            status = "too_slow"
        broken += said
    changed = {"status": status, "message": "; ".join(broken) or None, "baseline_us": kept.us if kept else None}
    return BenchResult.model_validate(result.model_dump() | changed)


def _limits(result: BenchResult, us: float, floor: float) -> list[str]:
    broken = []
    if result.at_most is not None and us > result.at_most * floor:
        text = f"takes {us:.2f} us = {us / floor:.2f} x its {result.floor_of} of {floor:.2f} us"
        broken.append(f"{text}, allowed {result.at_most:g} x")
    if result.at_most_us is not None and us > result.at_most_us:
        broken.append(f"takes {us:.2f} us, allowed {result.at_most_us:g} us")
    return broken


def _compared(result: BenchResult, us: float, kept: Kept | None, name: str, fail_slower: float) -> list[str]:
    if kept is None:
        return [f"has no time under '{name}' to be compared with (--save {name} keeps one)"]
    if kept.evidence != result.evidence:
        return [f"was timed on {kept.evidence} for '{name}', now on {result.evidence}: cannot be compared"]
    slower = 100 * (us / kept.us - 1)
    if slower > fail_slower:
        return [f"is {slower:.1f} % slower than the {kept.us:.2f} us of '{name}', allowed {fail_slower:g} %"]
    return []
