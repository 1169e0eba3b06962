"""`summary.md`: a table of gates and a folded block per failure, small enough for a CI step summary."""

from __future__ import annotations

from gate import blocks, table
from gate.bench import table as times
from gate.result import BenchReport, GateResult, Result
from gate.status import NOT_RUN, is_failure

# GitHub refuses more than 1 MiB a step; the rest is in the report.
_MOST_BYTES = 200_000
_MOST_BLOCKS = 20


def render(result: Result) -> str:
    """Markdown of the whole run, under 200 kB."""
    lines = [f"### {headline(result)}", "", *(_gates(result) if result.bench is None else times.markdown(result)), ""]
    failures = result.failures()
    for one in result.bench.failures() if result.bench is not None else []:
        lines += ["```", *(line.replace("```", "'''") for line in times.failure(one)), "```", ""]
    for case in failures[:_MOST_BLOCKS]:
        lines += [f"<details><summary>{_escape(case.label)}: {case.status}</summary>", "", "```"]
        lines += [line.replace("```", "'''") for line in blocks.failure(case)]
        lines += ["```", "</details>", ""]
    if len(failures) > _MOST_BLOCKS:
        lines += [f"{len(failures) - _MOST_BLOCKS} more failures are in report.html.", ""]
    lines += ["<details><summary>What was not checked</summary>", ""]
    lines += [f"- {_escape(item.what)}: {_escape(item.why)}" for item in result.not_checked]
    lines += ["", "</details>", ""]
    text = "\n".join(lines)
    if len(text.encode()) > _MOST_BYTES:
        cut = text.encode()[: _MOST_BYTES - 200].decode(errors="ignore")
        text = f"{cut}\n```\n</details>\n\nCut here; the rest is in report.html.\n"
    return text


def headline(result: Result, *, mark: bool = True) -> str:
    """`❌ gates: 1 failed, 11 passed  (emulated sm_100a, 0b6ca0d)`; without `mark` the sign in front is left out."""
    commit = result.run.commit + ("-dirty" if result.run.dirty else "")
    stopped = " interrupted," if result.run.interrupted else ""
    if result.bench is not None:
        return f"{_sign(result.bench) if mark else ''}times:{stopped} {times.summary(result.bench.results)}  ({commit})"
    counted: dict[str, int] = {}
    for gate in result.gates:
        word = (
            "failed"
            if is_failure(gate.status)
            else {"pass": "passed", "xfail": "building"}.get(gate.status, gate.status)
        )
        counted[word] = counted.get(word, 0) + 1
    order = ("failed", "passed", "building", "blocked", "skipped")
    counts = ", ".join(f"{counted[word]} {word}" for word in order if word in counted) or "nothing ran"
    sign = "❌ " if "failed" in counted else ("✅ " if "passed" in counted else "⚠️ ")
    evidence = ", ".join(dict.fromkeys(g.evidence for g in result.gates if g.status not in NOT_RUN)) or "nothing ran"
    return f"{sign if mark else ''}gates:{stopped} {counts}  ({evidence}, {commit})"


def _sign(bench: BenchReport) -> str:
    if bench.failures():
        return "❌ "
    return "✅ " if any(one.status == "pass" for one in bench.results) else "⚠️ "


def _gates(result: Result) -> list[str]:
    lines = ["| gate | arch | evidence | cases | worst diff / allowed | note |", "|---|---|---|---|---|---|"]
    for gate in result.gates:
        cases = [c for c in result.cases if (c.gate, c.arch) == (gate.gate, gate.arch) and c.mutant is None]
        worst = table.worst(cases).removeprefix("worst ").replace(", allowed", " /")
        cells = [
            gate.gate,
            gate.arch,
            gate.evidence,
            f"{_mark(gate)} {gate.passed}/{gate.total}",
            worst,
            _note(gate, result),
        ]
        lines.append("| " + " | ".join(_escape(cell).replace("|", "\\|") for cell in cells) + " |")
    return lines


def _mark(gate: GateResult) -> str:
    if gate.status in NOT_RUN:
        return "–"
    return "✅" if gate.status == "pass" else ("🚧" if gate.status == "xfail" else "❌")


def _note(gate: GateResult, result: Result) -> str:
    for case in result.failures():
        same = (case.gate, case.arch) == (gate.gate, gate.arch)
        if same and case.looks_like is not None and case.looks_like.equal:
            return f"looks like `{case.looks_like.variant}`"
    return gate.message or ""


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
