"""The text of a failure: first line what, where, measured, allowed; then first wrong, worst, where, looks like, again.

Plain lines without colour; terminal, Markdown, HTML and JUnit all show these.
"""

from __future__ import annotations

import shlex

from gate.result import CaseResult, FindingResult, LooksLike, OutputResult, Place
from gate.status import OF_TOOL

WORDS = {
    "pass": "PASS",
    "hang": "HANG",
    "timeout": "TIME",
    "blocked": "BLOCK",
    "skipped": "SKIP",
    "xfail": "XFAIL",
    "xpass": "XPASS",
    "compile_error": "ERROR",
    "contract_error": "ERROR",
    "runtime_error": "ERROR",
    "unknown_instruction": "ERROR",
}
_INDENT = "  "
_LABEL = 14
_LOOKS_WELL = 0.9
_MOST_FINDINGS = 10


def word(status: str) -> str:
    """The word that begins a line about a result: PASS, FAIL, HANG, ERROR, …"""
    return WORDS.get(status, "FAIL")


def failure(result: CaseResult) -> list[str]:
    """The block of one failed, skipped or blocked case, the first line being complete by itself."""
    if result.reason is not None:
        return [f"{word(result.status):<5} {result.label}  {result.reason}"]
    message = (result.message or "").splitlines() or [""]
    status = result.found or result.status
    head = f"{word(result.status)} {result.label}  {message[0]}"
    note = _cosine_note(result)
    lines = [head + (f"  {note}" if note else "")]
    lines += [f"{_INDENT}{line}" for line in message[1:]]
    if status not in ("wrong_values", "not_finite", "wrong_shape", "wrong_dtype"):
        lines.append(_line("step", f"{result.step} ({status})"))
    for name, output in result.outputs.items():
        if output.first is not None:
            lines += _places(name, output, several=len(result.outputs) > 1)
    if result.looks_like is not None:
        lines += _looks_like(result.looks_like)
    lines += _findings(result)
    lines += [_line("note", note) for note in result.notes]
    if result.tail:
        lines += [f"{_INDENT}│ {line}" for line in result.tail.splitlines()]
    lines.append(_line("again", again(result)))
    return lines


def again(result: CaseResult) -> str:
    """The command that runs this case alone."""
    words = ["python", "run_gate.py", result.gate, "-k", f"{result.case}-s{result.seed}", "--arch", result.arch]
    words += {"oracle": ["--oracle-only"], "cuda": ["--on", "gpu"]}.get(result.on, [])
    words += ["--falsify"] if result.mutant else []
    words += _sanitize_words(result)
    if result.schedules is not None and result.schedules.file:
        # a schedule fits the very text that it was recorded for, line numbers included: no other trace
        words += ["--replay", result.schedules.file]
    elif result.found is None and result.status in ("wrong_values", "hang"):
        words += ["--debug", "shapes"]
    return shlex.join(words)


def _sanitize_words(result: CaseResult) -> list[str]:
    if result.sanitizers is None or not result.sanitizers.findings:
        return []
    tools = result.sanitizers.tools
    return ["--sanitize", *([",".join(tools)] if len(tools) < len(OF_TOOL) else [])]


def _findings(result: CaseResult) -> list[str]:
    """What the checkers found, both sides of each; the first ones of many."""
    if result.sanitizers is None:
        return []
    found = result.sanitizers.findings
    lines = [f"{_INDENT}{line}" for finding in found[:_MOST_FINDINGS] for line in finding_lines(finding)]
    left = len(found) - _MOST_FINDINGS + result.sanitizers.more
    return lines + ([f"{_INDENT}… and {left} more findings, in result.json"] if left > 0 else [])


def finding_lines(finding: FindingResult) -> list[str]:
    """One finding: what and where in memory, what is missing, and the instructions of both sides."""
    times = f"  ({finding.count} times)" if finding.count > 1 else ""
    lines = [f"{finding.tool}: {finding.kind}: {finding.memory}{times}", f"  {finding.missing}"]
    lines.append(f"  at {place(finding.at)}")
    return lines + ([f"  and {place(finding.other)}"] if finding.other is not None else [])


def place(at: Place) -> str:
    """An instruction of a warp in one line."""
    source = f" ({at.file}:{at.source_line})" if at.file else ""
    role = f" [{at.role}]" if at.role else ""
    cta = ", ".join(map(str, at.cta))
    return f"{at.kernel}, CTA ({cta}), warp {at.warp}{role}, PTX line {at.line}{source}: {at.text}"


def _line(label: str, text: str) -> str:
    return f"{_INDENT}{label:<{_LABEL}}{text}"


def _cosine_note(result: CaseResult) -> str:
    """Cosine flatters: say so where it looks well and the rest does not."""
    first = next((output for output in result.outputs.values() if output.failed), None)
    if first is not None and "cos" not in first.failed and first.cos is not None and first.cos > _LOOKS_WELL:
        return f"(cos {first.cos:.3f} looks harmless)"
    return ""


def _places(name: str, output: OutputResult, *, several: bool) -> list[str]:
    lines = []
    if output.failed:
        # measured against the limits; where NaN or infinities are wrong, the first line has said it all
        lines.append(_line("first wrong", _element(name, output.first, output.first_got, output.first_want)))
        lines.append(_line("worst", _element(name, output.worst, output.worst_got, output.worst_want)))
    if output.where:
        lines.append(_line("where", (f"{name}: " if several else "") + output.where))
    return lines


def _element(name: str, index: list[int] | None, got: float | None, want: float | None) -> str:
    at = f"{name}[{', '.join(str(i) for i in index or [])}]"
    return f"{at:<18} got {_number(got)}   want {_number(want)}"


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    if value == int(value) if abs(value) < 1e9 else False:
        return f"{value:+.0f}"
    return f"{value:+.4f}" if 1e-3 <= abs(value) < 1e5 else f"{value:+.4e}"


def _looks_like(like: LooksLike) -> list[str]:
    if not like.equal:
        return [
            _line("looks like", f"none of the known mistakes (nearest: {like.variant}, diff to it {like.diff:.1e})")
        ]
    following = (
        f"; next: {like.next} {like.next_diff:.1e}" if like.next is not None and like.next_diff is not None else ""
    )
    lines = [_line("looks like", f"{like.variant}   (diff to that variant {like.diff:.1e}{following})")]
    lines += [_line("", text) for text in (like.hint, like.place) if text]
    return lines
