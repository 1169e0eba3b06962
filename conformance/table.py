"""The results as text: a line in the terminal, and docs/conformance.md."""

from __future__ import annotations

from conformance.cases import EXAMPLES, Case
from conformance.child import Outcome

Row = tuple[Case, Outcome]

_HEADER = """# Kernels of NVIDIA's examples on the emulator

`python -m conformance --cutlass DIR` wrote this page: the CuTe DSL examples of a CUTLASS checkout ({commit}),
unchanged, with nvidia-cutlass-dsl {dsl}. No GPU took part. *Verdict* is the script's. cos, rel_rms and max error are
ours, taken where the script compares its output with its reference: the worst of all its comparisons; – means that it
compares by other means. Benchmarks are left out. Block-scaled references, which torch computes on GPUs only, are ours
(`conformance/stand_ins.py`). *s* is processor time: tracing, compiling, emulating and the reference.

{summary}
"""
_COLUMNS = "| script | arch | verdict | cos | rel_rms | max error | warp-instructions | s | note |\n" + "|---" * 9 + "|"


def page(rows: list[Row], commit: str, dsl: str, sources: str) -> str:
    """docs/conformance.md. sources: the digest of the present code; results of other code are told."""
    parts = [_HEADER.format(commit=commit, dsl=dsl, summary=summary(rows))]
    older = sum(outcome.sources != sources for _, outcome in rows)
    if older:
        parts.append(f"{older} of the {len(rows)} results were obtained with earlier sources of the emulator.\n")
    for title, primitive in (("Kernels", False), ("Primitives", True)):
        lines = [_line(case, outcome) for case, outcome in rows if case.primitive == primitive]
        folder = EXAMPLES / "experimental/primitives" if primitive else EXAMPLES
        parts.append(f"## {title}\n\nPaths are below `{folder}`.\n\n{_COLUMNS}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def summary(rows: list[Row]) -> str:
    """How many scripts pass, and which verdicts are not the expected ones."""
    parts = []
    for title, primitive in (("scripts", False), ("primitives", True)):
        paths = {case.path for case, _ in rows if case.primitive == primitive}
        bad = {case.path for case, outcome in rows if case.primitive == primitive and outcome.verdict != "pass"}
        parts.append(f"{len(paths - bad)} of {len(paths)} {title}")
    wrong = [case.name for case, outcome in rows if outcome.verdict != case.expected]
    tail = f" Not as expected: {', '.join(wrong)}." if wrong else " Every verdict is the expected one."
    return f"{' and '.join(parts)} pass.{tail}"


def short(case: Case, outcome: Outcome) -> str:
    """One line for the terminal."""
    cos, rel_rms, max_error = _figures(outcome)
    told = "" if outcome.verdict == "pass" else f"  {_first_line(outcome.message, 110)}"
    return (
        f"{case.name:34} {case.arch:8} {outcome.verdict:12} cos {cos:11} rel_rms {rel_rms:8} max {max_error:8} "
        f"{outcome.instructions:>11,} wi {outcome.seconds:6.1f} s{told}"
    )


def _line(case: Case, outcome: Outcome) -> str:
    path = case.path.removeprefix("experimental/primitives/")
    called = f"`{path} {case.arguments}`" if case.arguments else f"`{path}`"
    cells = (called, case.arch, outcome.verdict, *_figures(outcome), f"{outcome.instructions:,}")
    return f"| {' | '.join(cells)} | {outcome.seconds:.1f} | {_note(case, outcome)} |"


def _note(case: Case, outcome: Outcome) -> str:
    notes = [case.note] if case.note else []
    if outcome.verdict not in ("pass", case.expected):
        notes.append(_first_line(outcome.message, 160).replace("|", "\\|"))
    if outcome.constant:
        notes.append("its reference is one constant")
    if not outcome.launches:
        notes.append("launches nothing")
    return "; ".join(notes)


def _figures(outcome: Outcome) -> tuple[str, str, str]:
    cos = "–" if outcome.cos is None else f"{outcome.cos:.9f}"
    return cos, _short(outcome.rel_rms), _short(outcome.max_error)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _first_line(text: str, length: int) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= length else line[: length - 1] + "…"
