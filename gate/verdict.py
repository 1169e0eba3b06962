"""From case results to the verdict on a gate: pure functions, used while running and again by the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from gate.result import CaseResult, Falsification, GateResult, short_case
from gate.schema import Gate
from gate.status import NOT_RUN, is_failure


def falsifications(gate: Gate, results: Iterable[CaseResult]) -> list[Falsification]:
    """One row per wrong variant and per mutant that was run: where it was rejected, and which cases are blind to it.

    A variant must be rejected by any limit on at least one case; a mutant with one of the statuses that
    `falsified_by` names, on at least one case.
    """
    real = [r for r in results if r.mutant is None and r.status not in NOT_RUN]
    rows = []
    for name in dict.fromkeys(name for r in real for name in r.variants):
        seen = {r.id: r.variants[name] for r in real if name in r.variants}
        rows.append(_row(name, "variant", [], seen))
    for name, wanted in gate.falsified_by.items():
        runs = {_case_of(r): _status_of(r, wanted) for r in results if r.mutant == name and r.status not in NOT_RUN}
        if runs:
            rows.append(_row(name, "mutant", wanted, runs))
    return rows


def _case_of(result: CaseResult) -> str:
    return result.id.removesuffix(f"-{result.mutant}")


def _status_of(result: CaseResult, wanted: list[str]) -> str:
    """What a mutant ended as: of its own status and those of the checkers' findings, rather one that is wanted."""
    ended = [result.found or result.status, *result.statuses]
    return next((status for status in ended if status in wanted), ended[0])


def _row(name: str, kind: str, wanted: list[str], seen: dict[str, str]) -> Falsification:
    blind = [case for case, status in seen.items() if status == "pass"]
    hit = [case for case, status in seen.items() if status != "pass" and (not wanted or status in wanted)]
    other = {case: status for case, status in seen.items() if case not in blind and case not in hit}
    verdict = "rejected" if hit else ("wrong_reason" if other else "accepted")
    row = {"name": name, "kind": kind, "wanted": wanted, "verdict": verdict, "rejected_on": hit, "blind": blind}
    return Falsification.model_validate(row | {"other": other})


def judge_gate(
    name: str, gate: Gate, arch: str, results: list[CaseResult], *, complete: bool, falsified: bool
) -> tuple[GateResult, list[CaseResult]]:
    """The verdict on one gate and architecture, and its results with `building` taken into account.

    complete: every case and seed of the gate is among `results`; only then can a variant count as never rejected, and a
    `building` gate as passing. falsified: its mutants were run too.
    """
    real = [r for r in results if r.mutant is None]
    rows = falsifications(gate, results)
    status, message = _status(real, rows, complete, falsified, gate)
    if gate.state == "building" and any(r.on != "oracle" for r in real):
        status, message, results = _building(status, message, results, complete)
    ran = [r for r in real if r.status not in NOT_RUN]
    verdict = GateResult(
        gate=name,
        about=gate.about,
        arch=arch,
        evidence=", ".join(dict.fromkeys(r.evidence for r in ran)) or "nothing ran",
        status=status,  # type: ignore[arg-type]
        message=message,
        passed=sum(r.status == "pass" for r in real),
        total=len(real),
        complete=complete,
        falsified=falsified,
        falsification=rows,
        seconds=sum(r.seconds.get("total", 0.0) for r in results),
    )
    return verdict, results


def _status(
    real: list[CaseResult], rows: list[Falsification], complete: bool, falsified: bool, gate: Gate
) -> tuple[str, str | None]:
    failed = [r for r in real if is_failure(r.status)]
    if failed:
        return failed[0].status, f"{len(failed)} of {len(real)} cases failed"
    if all(r.status in NOT_RUN for r in real):
        status = "blocked" if any(r.status == "blocked" for r in real) else "skipped"
        return status, next((r.reason for r in real if r.status == status), "no case was run")
    if any(r.status in NOT_RUN for r in real):
        missing = next(r for r in real if r.status in NOT_RUN)
        return "skipped", f"not every case was run: {missing.reason}"
    accepted = [_accepted(row) for row in rows if row.verdict != "rejected" and (complete or row.kind == "mutant")]
    if complete and falsified and not rows:
        accepted = ["nothing shows that this gate can fail: it has no wrong variant and no mutant"]
    return ("variant_accepted", "; ".join(accepted)) if accepted else ("pass", None)


def _accepted(row: Falsification) -> str:
    if row.verdict == "wrong_reason":
        seen = ", ".join(f"{status} on {short_case(case)}" for case, status in list(row.other.items())[:3])
        return f"mutant {row.name} must end as {' or '.join(row.wanted)}, ended as {seen}"
    kind = "wrong variant" if row.kind == "variant" else "mutant"
    names = list(dict.fromkeys(short_case(case) for case in row.blind))
    cases = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    return f"{kind} {row.name} passes every case ({cases}): the limit is too loose or the data too easy"


def _building(
    status: str, message: str | None, results: list[CaseResult], complete: bool
) -> tuple[str, str | None, list[CaseResult]]:
    """Failures of a building gate are expected; passing as a whole is not."""
    if status in NOT_RUN:
        return status, message, results
    if status != "pass":
        return "xfail", message, [_turned(r, "xfail") if is_failure(r.status) and not r.mutant else r for r in results]
    if not complete:
        return "xfail", "the cases that were run pass; the gate is still building", results
    text = "state is `building` but it passed: remove `state: building`"
    return "xpass", text, [_turned(r, "xpass") if not r.mutant else r for r in results]


def _turned(result: CaseResult, status: str) -> CaseResult:
    return result.model_copy(update={"status": status, "found": result.status})
