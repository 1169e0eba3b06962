"""The closed set of statuses that a case or a gate can end in, and what each one means for the verdict."""

from __future__ import annotations

from typing import Literal, get_args

Status = Literal[
    "pass",
    "wrong_values",
    "wrong_shape",
    "wrong_dtype",
    "not_finite",
    "input_changed",
    "not_repeatable",
    "memory_fault",
    "uninitialised",
    "race",
    "sync",
    "tmem",
    "variant_accepted",
    "contract_error",
    "compile_error",
    "unknown_instruction",
    "runtime_error",
    "hang",
    "timeout",
    "wrong_launches",
    "wrong_syncs",
    "wrong_compiles",
    "over_memory",
    "over_resources",
    "too_slow",
    "blocked",
    "skipped",
    "xfail",
    "xpass",
]

# What a mutant may be rejected with: everything that the judge can find out about one case by itself.
Rejection = Literal[
    "wrong_values",
    "wrong_shape",
    "wrong_dtype",
    "not_finite",
    "input_changed",
    "not_repeatable",
    "compile_error",
    "unknown_instruction",
    "runtime_error",
    "hang",
    "timeout",
    "wrong_launches",
    "wrong_syncs",
    "wrong_compiles",
    "over_memory",
    "over_resources",
    "too_slow",
    "memory_fault",
    "uninitialised",
    "race",
    "sync",
    "tmem",
]

Step = Literal[
    "import",
    "inputs",
    "compile",
    "run",
    "unchanged",
    "oracle",
    "compare",
    "repeat",
    "counts",
    "schedules",
    "sanitize",
    "variants",
]

# What timing one size can end in.
BenchStatus = Literal[
    "pass", "too_slow", "no_baseline", "not_repeatable", "contract_error", "runtime_error", "timeout", "skipped"
]
# The kernel was timed; the others say why it was not.
BENCH_TIMED = frozenset({"pass", "too_slow", "no_baseline"})

REJECTIONS: tuple[str, ...] = get_args(Rejection)
# What a finding of each checker makes of a case, in the order in which a case with several is named after them.
OF_TOOL: dict[str, Status] = {
    "memcheck": "memory_fault",
    "initcheck": "uninitialised",
    "racecheck": "race",
    "synccheck": "sync",
    "tmemcheck": "tmem",
}
NOT_RUN = frozenset({"blocked", "skipped"})
GREEN = frozenset({"pass", "xfail"})
# The tool could not even judge these: JUnit calls them errors, not failures.
CRASHES = frozenset({"contract_error", "compile_error", "unknown_instruction", "runtime_error", "hang", "timeout"})


def is_failure(status: str) -> bool:
    """Whether `status` makes the run red (a skip or a block does not: it is listed as not checked)."""
    return status not in GREEN and status not in NOT_RUN
