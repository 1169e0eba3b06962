"""The cells of a bench table, as text: terminal, Markdown and HTML show the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gate.result import BenchResult, Result, RunInfo
from gate.status import BENCH_TIMED, is_failure

_BEFORE = ("case", "us", "spread", "MB", "TB/s", "floor", "× floor", "allowed")
_WORDS = ("case", "verdict")
_DIGITS = 3
LEGEND = (
    "floor: a cold read, or a copy, of as many bytes; * at the rate of a large copy. spread: between the quartiles."
)


@dataclass(frozen=True)
class Column:
    """A column: its name, whether it holds words, and whose times: ours, torch's of the same run, or quoted ones."""

    name: str
    words: bool
    of: str = "ours"


def columns(results: Sequence[BenchResult]) -> list[Column]:
    """The columns of a gate's table: one for every canary and peer that any of its results has."""
    found = [Column(name, name in _WORDS) for name in _BEFORE]
    found += [Column(name, False, "canary") for name in dict.fromkeys(n for r in results for n in r.canaries)]
    found += [Column(name, False, "peer") for name in dict.fromkeys(n for r in results for n in r.peers)]
    return [*found, Column("verdict", True)]


def evidence(run: RunInfo, results: Iterable[BenchResult]) -> str:
    """What times hold for: device, driver, versions, date, and how fast that device copied."""
    copies = next((one.copy_tb_s for one in results if one.copy_tb_s is not None), None)
    parts = [", ".join(run.machine.gpus) or "no GPU"]
    parts += [f"driver {run.machine.driver}"] if run.machine.driver else []
    parts += [f"{name} {run.versions[name]}" for name in ("torch", "cutlass-dsl") if name in run.versions]
    parts += [run.started[:10], f"commit {run.commit}{'-dirty' if run.dirty else ''}"]
    parts += [f"copies at {copies:.2f} TB/s"] if copies is not None else []
    return " · ".join(parts)


def row(result: BenchResult, shown: Sequence[Column]) -> list[str]:
    """One line."""
    us, low, high, slow = result.us, result.low_us, result.high_us, result.baseline_us
    spread = f"{100 * (high - low) / us:.1f}%" if us and low is not None and high is not None else "-"
    cells = {
        "case": result.case,
        "us": number(us) + (f" {100 * (us / slow - 1):+.1f}%" if us is not None and slow else ""),
        "spread": spread,
        "MB": number(result.bytes / 1e6),
        "TB/s": f"{result.tb_s:.2f}" if result.tb_s is not None else "-",
        "floor": number(result.floor_us) + ("*" if result.floor_of == "copy rate" else ""),
        "× floor": f"{result.of_floor:.2f}" if result.of_floor is not None else "-",
        "allowed": allowed(result),
        "verdict": result.status,
    }
    times = {"canary": result.canaries, "peer": result.peers}
    return [cells[c.name] if c.of == "ours" else number(times[c.of].get(c.name)) for c in shown]


def allowed(result: BenchResult) -> str:
    """`1.3× 3.3us`."""
    parts = [f"{result.at_most:g}×"] if result.at_most is not None else []
    parts += [f"{result.at_most_us:g}us"] if result.at_most_us is not None else []
    return " ".join(parts) or "-"


def number(value: float | None) -> str:
    """Three digits, four above a hundred: `2.59`, `70.4`, `1254.7`."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.3f}" if value < 0.1 else f"{value:#.{_DIGITS}g}"


def summary(results: Iterable[BenchResult]) -> str:
    """`21 timed, 2 too_slow, 1 skipped`."""
    every = list(results)
    counted = {"timed": sum(result.status in BENCH_TIMED for result in every)}
    for result in every:
        if result.status != "pass":
            counted[result.status] = counted.get(result.status, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counted.items())


def failure(result: BenchResult) -> list[str]:
    """The block of a failure; the first line is complete by itself."""
    head = f"{'FAIL' if is_failure(result.status) else 'SKIP'}  {result.label}  {result.message}"
    lines = [head]
    lines += [f"  │ {line}" for line in (result.tail or "").splitlines()]
    return [*lines, f"  again         python run_gate.py {result.gate} --bench -k {result.case} --arch {result.arch}"]


def by_gate(results: Sequence[BenchResult]) -> dict[tuple[str, str], list[BenchResult]]:
    """Results of each gate and architecture, in their order."""
    found: dict[tuple[str, str], list[BenchResult]] = {}
    for result in results:
        found.setdefault((result.gate, result.arch), []).append(result)
    return found


def markdown(result: Result) -> list[str]:
    """A table for each gate, with what it holds for."""
    if result.bench is None:
        return []
    lines = [f"Times: {evidence(result.run, result.bench.results)}. Medians of a call in a CUDA graph, cold L2.", ""]
    for (gate, arch), results in by_gate(result.bench.results).items():
        shown = columns(results)
        heads = [f"{c.name} (quoted)" if c.of == "peer" else c.name for c in shown]
        lines += [f"#### {gate} · {arch}", "", "| " + " | ".join(heads) + " |"]
        lines.append("|" + "|".join("---" if c.words else "---:" for c in shown) + "|")
        lines += ["| " + " | ".join(row(one, shown)) + " |" for one in results]
        lines.append("")
    return [*lines, LEGEND, ""]
