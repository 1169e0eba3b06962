"""`report.html`: one file, no script, opens anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from gate import blocks, table
from gate.bench import table as times
from gate.ledger import Ledger
from gate.load import Gates
from gate.report.markdown import headline
from gate.report.svg import colour, error_map_svg, history_svg, ladder_svg
from gate.result import CaseResult, GateResult, Result, short_case
from gate.status import NOT_RUN, OF_TOOL, is_failure

_TEMPLATE = Path(__file__).with_name("report.html.j2")
# What one multiprocessor has, for the cost table.
_ARCH_LIMITS = {"registers": 255, "smem_bytes": 232_448, "tmem_columns": 512}


def render(result: Result, gates: Gates, ledger: Ledger) -> str:
    """The report of a run; `ledger` gives the history of each gate and what stands without this run."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.globals.update(seconds=table.seconds, count=table.count)
    environment.filters["short_case"] = short_case
    environment.filters["by_status"] = _by_status
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        result=result,
        headline=headline(result, mark=False),
        red=any(is_failure(gate.status) for gate in result.gates) or bool(result.bench and result.bench.failures()),
        times=_times(result),
        ladder=Markup(ladder_svg(_boxes(result, gates))),
        groups=_groups(result, gates),
        failures=[_failure(case) for case in result.failures()],
        unproven=[gate for gate in result.gates if gate.status in ("variant_accepted", "xpass")],
        gates=[_gate(gate, result, ledger) for gate in result.gates],
        sanitized=_sanitized(result),
        costs=_costs(result),
        arch_limits=_ARCH_LIMITS,
    )


def _times(result: Result) -> dict[str, Any] | None:
    """The bench tables, gate by gate, and what they hold for."""
    if result.bench is None:
        return None
    gates = []
    for (gate, arch), results in times.by_gate(result.bench.results).items():
        shown = times.columns(results)
        rows = [{"cells": times.row(one, shown), "colour": colour(one.status)} for one in results]
        gates.append({"name": f"{gate} · {arch}", "columns": shown, "rows": rows})
    evidence = times.evidence(result.run, result.bench.results)
    failures = ["\n".join(times.failure(one)) for one in result.bench.failures()]
    return {"evidence": evidence, "legend": times.LEGEND, "gates": gates, "failures": failures}


def _statuses(result: Result) -> dict[str, str]:
    """The worst status of each gate in this run, over its architectures."""
    found: dict[str, str] = {}
    for gate in result.gates:
        if gate.gate not in found or is_failure(gate.status):
            found[gate.gate] = gate.status
    return found


def _boxes(result: Result, gates: Gates) -> list[tuple[str, str, Sequence[str]]]:
    """The gates that are built, and those that needs connect with them."""
    statuses = _statuses(result)
    built = [name for name in gates.order if gates[name].state != "planned"]
    return [(name, statuses.get(name, "idle"), gates[name].needs) for name in built]


def _groups(result: Result, gates: Gates) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(group, [(gate, claim, colour)]) over the whole pipeline."""
    statuses = _statuses(result)
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for name in gates.file.gates:
        gate = gates[name]
        status = "planned" if gate.state == "planned" else statuses.get(name, "idle")
        groups.setdefault(gate.group or "other", []).append((name, gate.about, colour(status)))
    return list(groups.items())


def _failure(case: CaseResult) -> dict[str, Any]:
    maps = [error_map_svg(out.error_map, name) for name, out in case.outputs.items() if out.error_map is not None]
    head, *rest = blocks.failure(case)
    return {
        "case": case,
        "head": head,
        "text": "\n".join(rest),
        "maps": [Markup(text) for text in maps],
        "anchor": f"{case.gate}-{case.id}",
    }


def _gate(gate: GateResult, result: Result, ledger: Ledger) -> dict[str, Any]:
    cases = [c for c in result.cases if (c.gate, c.arch) == (gate.gate, gate.arch) and c.mutant is None]
    history = [(v.run, v.status) for v in ledger.history(gate.gate, gate.arch)]
    return {
        "verdict": gate,
        "colour": colour(gate.status),
        "word": blocks.word(gate.status),
        "facts": table.facts(gate, cases) if any(c.status not in NOT_RUN for c in cases) else [],
        "blind": table.blind_lines(row for row in gate.falsification if row.kind == "variant"),
        "history": Markup(history_svg(history)) if history else "",
        "cases": [{"case": case, "rows": _rows(case), "colour": colour(case.status)} for case in cases],
        "mutants": [row for row in gate.falsification if row.kind == "mutant"],
        "variants": [row for row in gate.falsification if row.kind == "variant"],
    }


def _rows(case: CaseResult) -> list[dict[str, Any]]:
    """One row per output: its metrics, each beside what is allowed."""
    rows = []
    for name, out in case.outputs.items():
        cells = [
            _cell(
                table.number(out.diff), table.number(table.allowed_diff(out)), {"diff", "vs_torch"} & set(out.failed)
            ),
            _cell(_cosine(out.cos), f"{out.allowed['cos']:g}" if "cos" in out.allowed else "-", "cos" in out.failed),
            _cell(table.number(out.rel_rms), table.number(out.allowed.get("rel_rms")), "rel_rms" in out.failed),
            _cell(table.number(out.max_abs), table.number(out.allowed.get("max_abs")), "max_abs" in out.failed),
        ]
        if "exact" in out.allowed:
            cells[-1] = _cell(f"{out.unequal} unequal", "0", "exact" in out.failed)
        rows.append({"name": name, "against": out.against, "cells": cells, "torch": table.number(out.torch)})
    return rows


def _cell(text: str, allowed: str, failed: object) -> dict[str, Any]:
    return {"text": text, "allowed": "" if allowed == "-" else allowed, "failed": bool(failed)}


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _by_status(other: dict[str, str]) -> str:
    """`hang on a, b; timeout on c`."""
    found: dict[str, list[str]] = {}
    for case, status in other.items():
        found.setdefault(status, []).append(short_case(case))
    return "; ".join(f"{status} on {', '.join(dict.fromkeys(cases))}" for status, cases in found.items())


def _sanitized(result: Result) -> dict[str, Any]:
    """Findings by case and tool, and every finding in full."""
    cases = [case for case in result.cases if case.sanitizers is not None and case.mutant is None]
    tools = [tool for tool in OF_TOOL if any(tool in case.sanitizers.tools for case in cases if case.sanitizers)]
    rows = []
    for case in cases:
        assert case.sanitizers is not None
        counts = case.sanitizers.by_tool()
        found = [(f, blocks.finding_lines(f)) for f in case.sanitizers.findings]
        rows.append({"case": case, "counts": [counts.get(tool) for tool in tools], "found": found})
    clean = [row for row in rows if not row["found"]]
    return {"tools": tools, "rows": [row for row in rows if row["found"]], "clean": len(clean)}


def _costs(result: Result) -> list[dict[str, Any]]:
    """Cases that have a cost at their first seed, each with its instructions by warp as shares."""
    costs = []
    seen: set[tuple[str, str, str]] = set()
    for case in result.cases:
        key = (case.gate, case.case, case.arch)
        if case.mutant is not None or not case.cost or key in seen:
            continue
        seen.add(key)
        by_warp = case.cost.get("by_warp", {})
        total = sum(by_warp.values()) or 1
        shares = [(warp, n, 100 * n / total) for warp, n in sorted(by_warp.items(), key=lambda item: int(item[0]))]
        costs.append({"case": case, "cost": case.cost, "shares": shares})
    return costs
