"""What is proven here, read from the `result.json` files under `build/gates`: there is no other state.

The newest result of every case counts. A gate passes on one kind of evidence if every case and seed that `gates.yaml`
asks for now has a newest result that passed *and* whose digest is that of the sources as they are now; if only the
digests differ, the pass is stale. Evidence of different kinds is never added up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gate.load import Gates

FOLDER = Path("build") / "gates"
LATEST = "latest"
State = Literal["pass", "fail", "partial", "never"]


@dataclass(frozen=True)
class Row:
    """One case of one earlier run: what the ledger needs of its result, and when and where it was written."""

    key: tuple[str, str, int, str, str]
    status: str
    digest: str
    evidence: str
    ended: str
    run: str
    seconds: float
    blind_to: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """What the ledger says of one gate on one architecture and kind of evidence.

    `never`: no case has a result. `partial`: some have none, and none failed. `stale`: sources, limits or tools have
    changed since.
    """

    gate: str
    arch: str
    on: str
    state: State
    stale: bool = False
    evidence: str = ""
    ended: str = ""
    run: str = ""
    passed: int = 0
    wanted: int = 0
    seconds: float = 0.0
    blind: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether the gate passes with the sources as they are now: the only thing that a model may rely on."""
        return self.state == "pass" and not self.stale


@dataclass(frozen=True)
class Verdict:
    """A gate's verdict in one earlier run, for its history."""

    run: str
    ended: str
    status: str


class Ledger:
    """The newest row of every case, and the verdicts of the last runs, newest first."""

    def __init__(
        self, rows: dict[tuple[str, str, int, str, str], Row], verdicts: dict[tuple[str, str], list[Verdict]]
    ) -> None:
        self.rows = rows
        self._verdicts = verdicts

    def entry(self, gates: Gates, gate: str, arch: str, on: str, digests: dict[str, str]) -> Entry:
        """The state of a gate; `digests` maps the ids of its cases to the digests that their sources have now."""
        wanted = [(gate, c.id, seed, arch, on) for c in gates[gate].cases or [] for seed in gates.seeds(gate)]
        rows = [self.rows[key] for key in wanted if key in self.rows]
        if not rows:
            return Entry(gate, arch, on, "never", wanted=len(wanted))
        newest = max(rows, key=lambda row: row.ended)
        verdict = self._last_verdict(gate, arch, newest.run)
        state: State = "pass"
        if any(row.status not in ("pass", "xpass") for row in rows) or verdict == "variant_accepted":
            state = "fail"
        elif len(rows) < len(wanted):
            state = "partial"
        return Entry(
            gate=gate,
            arch=arch,
            on=on,
            state=state,
            stale=any(row.digest != digests.get(row.key[1]) for row in rows),
            evidence=newest.evidence,
            ended=newest.ended,
            run=newest.run,
            passed=sum(row.status in ("pass", "xpass") for row in rows),
            wanted=len(wanted),
            seconds=sum(row.seconds for row in rows),
            blind={row.key[1]: row.blind_to for row in rows if row.blind_to},
        )

    def failed(self) -> set[tuple[str, str, int, str, str]]:
        """Keys of the cases whose newest result is a failure (for `--lf`)."""
        return {key for key, row in self.rows.items() if row.status not in ("pass", "xfail")}

    def passed(self, key: tuple[str, str, int, str, str], digest: str) -> Row | None:
        """The newest result of a case if it passed with this digest (for `--resume`)."""
        row = self.rows.get(key)
        return row if row is not None and row.status == "pass" and row.digest == digest else None

    def history(self, gate: str, arch: str, most: int = 20) -> list[Verdict]:
        """Verdicts on a gate in the last runs, oldest first."""
        return self._verdicts.get((gate, arch), [])[:most][::-1]

    def _last_verdict(self, gate: str, arch: str, run: str) -> str | None:
        return next((v.status for v in self._verdicts.get((gate, arch), []) if v.run == run), None)


def read_ledger(root: Path) -> Ledger:
    """Read every `result.json` under `root/build/gates`; unreadable or foreign files are passed over."""
    rows: dict[tuple[str, str, int, str, str], Row] = {}
    verdicts: dict[tuple[str, str], list[Verdict]] = {}
    for folder in sorted(run_folders(root), reverse=True):
        data = _load(folder / "result.json")
        if data is None:
            continue
        ended = data["run"].get("ended") or data["run"]["started"]
        for gate in data.get("gates", []):
            if gate["status"] not in ("skipped", "blocked"):
                found = verdicts.setdefault((gate["gate"], gate["arch"]), [])
                found.append(Verdict(folder.name, ended, gate["status"]))
        for case in data.get("cases", []):
            row = _row(case, ended, folder.name)
            if row is not None:
                rows.setdefault(row.key, row)
    return Ledger(rows, verdicts)


def run_folders(root: Path) -> list[Path]:
    """The folders of earlier runs (`latest` is only a link to one)."""
    folder = root / FOLDER
    return [p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()] if folder.is_dir() else []


def _load(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("schema") == 1 else None


def _row(case: dict[str, Any], ended: str, run: str) -> Row | None:
    """One row; mutants prove nothing, and what was not run or carried over says nothing new."""
    if case.get("mutant") or case["status"] in ("skipped", "blocked") or case.get("resumed_from"):
        return None
    return Row(
        key=(case["gate"], case["case"], case["seed"], case["arch"], case["on"]),
        status=case["status"],
        digest=case.get("digest", ""),
        evidence=case["evidence"],
        ended=ended,
        run=run,
        seconds=case.get("seconds", {}).get("total", 0.0),
        blind_to=tuple(case.get("blind_to", ())),
    )
