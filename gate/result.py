"""`result.json`: what a run found out, as versioned pydantic models with a closed set of statuses.

Everything that a person sees (terminal, Markdown, HTML, JUnit) is rendered from these and from nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gate.status import BENCH_TIMED, OF_TOOL, BenchStatus, Rejection, Status, Step, is_failure

SCHEMA: Literal[1] = 1


class _Model(BaseModel):
    # inf and nan occur in measured values; JSON has no numbers for them, so they are the texts "Infinity" and "NaN"
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", populate_by_name=True)


class ErrorMap(_Model):
    """How wrong each block of an output is; rows are all leading dimensions flattened."""

    rows: int
    columns: int
    row_block: int
    column_block: int
    percent: list[list[int]]


class OutputResult(_Model):
    """One output against its oracle. `allowed` maps each limit to its value, `failed` names those that did not hold."""

    shape: list[int]
    dtype: str
    diff: float | None = None
    cos: float | None = None
    rel_rms: float | None = None
    max_abs: float | None = None
    unequal: int | None = None
    torch: float | None = None
    rounding: float | None = None
    allowed: dict[str, float] = {}
    failed: list[str] = []
    against: str = "ideal"
    wrong: int = 0
    first: list[int] | None = None
    first_got: float | None = None
    first_want: float | None = None
    worst: list[int] | None = None
    worst_got: float | None = None
    worst_want: float | None = None
    where: str | None = None
    error_map: ErrorMap | None = None


class LooksLike(_Model):
    """The known mistake that a failing output is nearest to. `equal`: near enough to be named as the cause."""

    variant: str
    diff: float
    equal: bool
    next: str | None = None
    next_diff: float | None = None
    hint: str | None = None
    place: str | None = None


class Schedules(_Model):
    """Runs under other schedules: how many random ones, whether all gave the same bits, and if one did not, what it
    decided otherwise (as sentences) and the file to replay it from, relative to the root of the tree."""

    seeds: int = 0
    equal: bool = False
    decisions: list[str] = []
    file: str | None = None


class Place(_Model):
    """One side of a finding: a static instruction of a warp, and the Python line that it comes from."""

    kernel: str
    cta: list[int]
    warp: int
    line: int
    text: str
    file: str | None = None
    source_line: int | None = None
    role: str = ""


class FindingResult(_Model):
    """What a checker has found: one mistake at `at` (and, of two that don't agree, `other`), `count` times."""

    tool: str
    kind: str
    memory: str
    missing: str
    count: int = 1
    at: Place
    other: Place | None = None


class Sanitizers(_Model):
    """The checkers that listened to one more run, and what they found; `more` findings are not kept."""

    tools: list[str]
    findings: list[FindingResult] = []
    more: int = 0
    seconds: float = 0.0

    def by_tool(self) -> dict[str, int]:
        """How many of the findings that are kept each checker has."""
        return {tool: sum(f.tool == tool for f in self.findings) for tool in self.tools}


class CaseResult(_Model):
    """One case of one gate, seed and architecture, judged once. `mutant` names the planted fault it was run with."""

    gate: str
    case: str
    seed: int
    arch: str
    on: Literal["emulated", "cuda", "oracle"]
    evidence: str
    status: Status
    step: Step | None = None
    message: str | None = None
    reason: str | None = None
    found: Rejection | Literal["pass", "contract_error"] | None = None
    mutant: str | None = None
    outputs: dict[str, OutputResult] = {}
    looks_like: LooksLike | None = None
    repeats: int = 0
    repeat_equal: bool | None = None
    policies: list[str] = []
    schedules: Schedules | None = None
    sanitizers: Sanitizers | None = None
    variants: dict[str, str] = {}
    blind_to: list[str] = []
    counts: dict[str, int] = {}
    cost: dict[str, Any] = {}
    notes: list[str] = []
    seconds: dict[str, float] = {}
    tail: str | None = None
    artifacts: list[str] = []
    digest: str = ""
    resumed_from: str | None = None

    @property
    def id(self) -> str:
        """`n256-s0-sm100`, with the mutant behind it if there is one."""
        return case_id(self.case, self.seed, self.arch, self.mutant)

    @property
    def label(self) -> str:
        """`fmha_multitile[n256-s0-sm100]`, as it is printed and as `-k` sees it."""
        return f"{self.gate}[{self.id}]"

    @model_validator(mode="after")
    def _fields_go_together(self) -> CaseResult:
        status = self.status
        rules = [
            (status in ("skipped", "blocked"), self.reason is not None, "needs a reason"),
            (
                status in ("skipped", "blocked"),
                not self.outputs and self.step is None,
                "has no outputs and no step",
            ),
            (
                is_failure(status) and status != "xpass",
                self.message is not None and self.step is not None,
                "needs message, step",
            ),
            (status in ("xfail", "xpass"), self.found is not None, "needs what was found"),
            (status not in ("xfail", "xpass"), self.found is None, "has nothing found beside its status"),
            (status == "pass", self.message is None and not self.failed_limits, "has no message and no failed limit"),
            (
                status == "pass" and self.on != "oracle",
                bool(self.outputs) and bool(self.repeat_equal),
                "needs equal repeats",
            ),
            (
                self.looks_like is not None,
                status in ("wrong_values", "not_finite", "xfail"),
                "cannot look like a variant",
            ),
            (status == "variant_accepted", self.step == "variants", "is found in the step variants"),
            (status == "pass", not self.statuses, "has no findings"),
        ]
        for applies, holds, text in rules:
            if applies and not holds:
                raise ValueError(f"{self.label}: a result with status '{status}' {text}")
        return self

    @property
    def statuses(self) -> list[str]:
        """What the findings of the checkers make of the case, one status for each that found something."""
        found = self.sanitizers.by_tool() if self.sanitizers is not None else {}
        return [status for tool, status in OF_TOOL.items() if found.get(tool)]

    @property
    def failed_limits(self) -> list[str]:
        """`output.limit` of every limit that did not hold."""
        return [f"{name}.{key}" for name, out in self.outputs.items() for key in out.failed]


class Falsification(_Model):
    """What the gate made of one wrong variant or mutant."""

    name: str
    kind: Literal["variant", "mutant"]
    wanted: list[str]
    verdict: Literal["rejected", "accepted", "wrong_reason"]
    rejected_on: list[str]
    blind: list[str]
    other: dict[str, str] = {}


class GateResult(_Model):
    """The verdict on one gate and architecture, from its case results (`gate.verdict`)."""

    gate: str
    about: str
    arch: str
    evidence: str
    status: Status
    message: str | None = None
    passed: int
    total: int
    complete: bool
    falsified: bool
    falsification: list[Falsification] = []
    seconds: float = 0.0


class BenchResult(_Model):
    """One size of one kernel, timed once: microseconds of a call, median and quartiles over replays of a graph.

    `floor_of` says which measured floor is the larger one, `copy_tb_s` what a large copy reached; `canaries` are
    torch's own products of the same run, `peers` figures from elsewhere that gates.yaml quotes.
    """

    gate: str
    case: str
    arch: str
    evidence: str = ""
    status: BenchStatus
    message: str | None = None
    bytes: int
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    calls: int = 0
    sets: int = 0
    floor_us: float | None = None
    floor_of: str = ""
    copy_tb_s: float | None = None
    at_most: float | None = None
    at_most_us: float | None = None
    canaries: dict[str, float] = {}
    peers: dict[str, float] = {}
    baseline_us: float | None = None
    seconds: float = 0.0
    tail: str | None = None

    @property
    def label(self) -> str:
        """`nvfp4_linear[wkv_m1-sm90]`, as it is printed and as `-k` sees it."""
        return f"{self.gate}[{self.case}-{self.arch}]"

    @property
    def tb_s(self) -> float | None:
        """Bytes over time, in TB/s."""
        return None if self.us is None else self.bytes / self.us / 1e6

    @property
    def of_floor(self) -> float | None:
        """Time over the floor."""
        return None if self.us is None or self.floor_us is None else self.us / self.floor_us

    @model_validator(mode="after")
    def _fields_go_together(self) -> BenchResult:
        timed = self.us is not None and self.floor_us is not None
        if self.status in BENCH_TIMED and not timed:
            raise ValueError(f"{self.label}: a bench result with status '{self.status}' needs a time and a floor")
        if (self.status == "pass") != (self.message is None):
            raise ValueError(f"{self.label}: a bench result with status '{self.status}' and message {self.message!r}")
        return self


class BenchReport(_Model):
    """The times of a run, under which name they were kept, and with which ones they were compared."""

    results: list[BenchResult]
    saved: str | None = None
    compared: str | None = None
    fail_slower: float | None = None

    def failures(self) -> list[BenchResult]:
        """What makes the run red."""
        return [result for result in self.results if is_failure(result.status)]


class NotChecked(_Model):
    """One thing that this run says nothing about."""

    what: str
    why: str


class Machine(_Model):
    """Where the run happened."""

    cpu: str
    cores: int
    gpus: list[str] = []
    driver: str | None = None


class RunInfo(_Model):
    """The run itself."""

    commit: str
    dirty: bool
    started: str
    ended: str | None = None
    seconds: float | None = None
    command: str
    interrupted: bool = False
    machine: Machine
    versions: dict[str, str]


class Result(_Model):
    """The whole file."""

    version: Literal[1] = Field(alias="schema")
    run: RunInfo
    gates: list[GateResult] = []
    cases: list[CaseResult] = []
    bench: BenchReport | None = None
    not_checked: list[NotChecked] = []

    def failures(self) -> list[CaseResult]:
        """The cases that a report has to explain, gate by gate."""
        found = []
        for gate in self.gates:
            own = [case for case in self.cases if (case.gate, case.arch) == (gate.gate, gate.arch)]
            found += to_explain(own, gate.falsification)
        return found


def to_explain(cases: list[CaseResult], rows: list[Falsification]) -> list[CaseResult]:
    """Red cases, and of every mutant that was rejected for a wrong reason the first such case.

    Other mutants are not: they are meant to fail.
    """
    found = [case for case in cases if case.mutant is None and is_failure(case.status)]
    for row in rows:
        if row.verdict == "wrong_reason":
            first = next(iter(row.other))
            found += [case for case in cases if case.mutant == row.name and case.id == f"{first}-{row.name}"]
    return found


def case_id(case: str, seed: int, arch: str, mutant: str | None = None) -> str:
    """The id of one case result inside its gate."""
    return f"{case}-s{seed}-{arch}" + (f"-{mutant}" if mutant else "")


def short_case(case: str) -> str:
    """`n256` of `n256-s0-sm100`."""
    return case.rsplit("-", 2)[0]


def read_result(path: Path) -> Result:
    """Load a `result.json`.

    Raises:
        ValueError: (pydantic's) if it is of another version or not a result.
    """
    return Result.model_validate_json(path.read_text(encoding="utf-8"))


def write_result(result: Result, path: Path) -> None:
    """Write `result.json` through a temporary file, so that a reader never sees half of it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(result.model_dump_json(indent=1, exclude_defaults=True, by_alias=True), encoding="utf-8")
    temporary.replace(path)
