"""The table of a gate as fixed-width lines of at most 120 columns, and the sentences below it. No colours here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gate.result import CaseResult, Falsification, GateResult, OutputResult, short_case
from gate.status import NOT_RUN

_COLUMNS = (("output", 7), ("diff", 9), ("allowed", 9), ("torch", 9), ("cos", 10), ("insts", 9), ("time", 8))
_LEAST_ID, _MOST_ID = 16, 36


def id_width(ids: Iterable[str]) -> int:
    """The width of the case column: wide enough for these ids, within reason."""
    return min(_MOST_ID, max(_LEAST_ID, *(len(case) + 1 for case in ids)))


def header(width: int) -> str:
    """The line above the rows; `width` is that of the case column."""
    return f"  {'case':<{width}}{'seed':>4}" + "".join(f"{name:>{size}}" for name, size in _COLUMNS)


def number(value: float | None) -> str:
    """`1.6e-06`, `0`, or `-` for nothing."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}"


def seconds(value: float) -> str:
    """`2.9 s`, `41 s`, `3 min 20 s`."""
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 120 else f"{value // 60:.0f} min {value % 60:.0f} s"


def count(value: float | None) -> str:
    """`812`, `14.2 k`, `1.15 M`."""
    if value is None:
        return "-"
    if value < 10_000:
        return f"{value:.0f}"
    return f"{value / 1e3:.1f} k" if value < 1e6 else f"{value / 1e6:.2f} M"


def main_output(result: CaseResult) -> tuple[str, OutputResult] | None:
    """The output that a one-line row shows: one that failed, else the first of the limits."""
    if not result.outputs:
        return None
    failed = [(name, out) for name, out in result.outputs.items() if out.failed]
    return failed[0] if failed else next(iter(result.outputs.items()))


def limit(key: str, value: float) -> str:
    """`diff 1.0e-05`, `cos 0.9999`, `exact`."""
    if key == "exact":
        return key
    return f"{key} {value:g}" if key == "cos" else f"{key} {number(value)}"


def allowed_diff(output: OutputResult) -> float | None:
    """The largest diff that the limits allow; None if they do not speak of diff."""
    limits = [output.allowed[key] for key in ("diff", "vs_torch") if key in output.allowed]
    return min(limits) if limits else None


def row(result: CaseResult, width: int) -> str:
    """One case, one line; the status is appended by whoever colours it."""
    cost = count(result.cost.get("instructions"))
    return _row(
        f"{result.case:<{width}}{result.seed:>4}", main_output(result), cost, seconds(result.seconds.get("total", 0.0))
    )


def verbose_rows(result: CaseResult, width: int) -> list[str]:
    """Every other output of a case, and what each allows."""
    main = main_output(result)
    others = [item for item in result.outputs.items() if main and item[0] != main[0]]
    lines = [_row(" " * (width + 4), item, "", "") for item in others]
    for name, out in result.outputs.items():
        limits = ", ".join(limit(key, value) for key, value in out.allowed.items())
        lines.append(f"    {name} {tuple(out.shape)} {out.dtype}: allowed {limits} (against {out.against})")
        lines.append(f"      rel_rms {number(out.rel_rms)}, max_abs {number(out.max_abs)}, {out.unequal} unequal")
    counts = ", ".join(f"{key} {value}" for key, value in result.counts.items())
    steps = ", ".join(f"{key} {seconds(value)}" for key, value in result.seconds.items() if key != "total")
    return [*lines, *([f"    {counts}"] if counts else []), *([f"    {steps}"] if steps else [])]


def _row(head: str, item: tuple[str, OutputResult] | None, cost: str, time: str) -> str:
    name, out = item if item else ("", None)
    cells = [number(out.diff), number(allowed_diff(out)), number(out.torch)] if out else ["-"] * 3
    cosine = f"{out.cos:.6f}" if out and out.cos is not None else "-"
    texts = [name, *cells, cosine, cost, time]
    return f"  {head}" + "".join(f"{text:>{size}}" for text, (_, size) in zip(texts, _COLUMNS, strict=True))


def worst(results: Iterable[CaseResult]) -> str:
    """`worst out.diff 1.6e-06, allowed 3.4e-06`: the output that came nearest to its limit, or went farthest beyond."""
    nearest: tuple[float, str] | None = None
    for result in results:
        for name, out in result.outputs.items():
            allowed = allowed_diff(out)
            if out.diff is None or allowed is None:
                continue
            share = out.diff / allowed if allowed else (0.0 if out.diff == 0 else float("inf"))
            if nearest is None or share > nearest[0]:
                nearest = share, f"worst {name}.diff {number(out.diff)}, allowed {number(allowed)}"
    return nearest[1] if nearest else ""


def facts(verdict: GateResult, results: Sequence[CaseResult]) -> list[str]:
    """What else was found out: compiles, repeats, policies, variants, mutants, what was not run."""
    real = [r for r in results if r.mutant is None and r.status not in NOT_RUN]
    lines = []
    compiled, built = (sum(r.counts.get(key, 0) for r in real) for key in ("compiled", "built"))
    if compiled:
        spent = sum(r.seconds.get("compile", 0.0) for r in real if r.counts.get("built"))
        lines.append(f"compiled {built} kernels in {seconds(spent)} ({compiled - built} from the cache)")
    repeats = [r for r in real if r.repeat_equal is not None]
    if repeats:
        same = "yes" if all(r.repeat_equal for r in repeats) else "NO"
        under = f" under {' and '.join(repeats[0].policies)}" if repeats[0].policies else ""
        lines.append(f"same bits {max(r.repeats for r in repeats)}×{under}: {same}")
    lines += _schedule_facts(real)
    lines += _sanitizer_facts(real)
    for kind in ("variant", "mutant"):
        rows = [row for row in verdict.falsification if row.kind == kind]
        name = "wrong variants" if kind == "variant" else "mutants"
        if rows:
            lines.append(f"{name} rejected: {sum(row.verdict == 'rejected' for row in rows)} of {len(rows)}")
        elif kind == "mutant":
            lines.append("mutants: not run (--falsify)" if not verdict.falsified else "mutants: none named")
    return lines


def _sanitizer_facts(real: Sequence[CaseResult]) -> list[str]:
    """Which checkers listened, and how much they found."""
    ran = [r.sanitizers for r in real if r.sanitizers is not None]
    if not ran:
        return ["sanitizers: not run (--sanitize)"] if any(r.on == "emulated" for r in real) else []
    found = sum(len(s.findings) + s.more for s in ran)
    return [f"sanitizers {', '.join(ran[0].tools)}: {found or 'no'} findings"]


def _schedule_facts(real: Sequence[CaseResult]) -> list[str]:
    """How many other schedules were tried, and whether the bits were the same."""
    tried = [r.schedules for r in real if r.schedules is not None]
    if not tried:
        return ["schedules: not run (--schedules N)"] if any(r.on == "emulated" for r in real) else []
    same = "yes" if all(t.equal for t in tried) else "NO"
    what = f"{max(t.seeds for t in tried)} random schedules" if any(t.seeds for t in tried) else "the given schedule"
    return [f"same bits under {what}: {same}"]


def blind_lines(rows: Iterable[Falsification]) -> list[str]:
    """`blind  n128: kv_tile_0_reused, no_rescale`, by case; seeds and architectures of one case are one line."""
    cases: dict[str, dict[str, None]] = {}
    for row_ in rows:
        for case in row_.blind:
            cases.setdefault(short_case(case), {})[row_.name] = None
    return [f"blind  {case}: {', '.join(names)}" for case, names in cases.items()]


def _few(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def mutant_lines(rows: Iterable[Falsification]) -> list[str]:
    """One line per mutant: what it was to end as, on how many cases it did, and where else it ended otherwise."""
    lines = []
    for row_ in rows:
        if row_.kind != "mutant":
            continue
        total = len(row_.rejected_on) + len(row_.blind) + len(row_.other)
        other = _few(f"{status} on {short_case(case)}" for case, status in row_.other.items())
        blind = _few([short_case(case) for case in row_.blind])
        text = f"  {row_.name:<26}{' or '.join(row_.wanted):<22}{len(row_.rejected_on):>3} of {total:<4}"
        tail = "; ".join(part for part in (f"blind: {blind}" if blind else "", other) if part)
        lines.append(f"{text}{'' if row_.verdict == 'rejected' else row_.verdict.upper() + '  '}{tail}".rstrip())
    head = f"  {'mutant':<26}{'must end as':<22}{'cases':<10}"
    return [head, *lines] if lines else []
