"""The command, on a made-up checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.__main__ import latest, main, run_apart, sources
from conformance.cases import EXAMPLES, PRIMITIVES, SCRIPTS, Case, cases
from conformance.child import Outcome
from conformance.table import page, short, summary

SOURCES = {
    "good": """
import torch, cutlass.cute as cute
@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i] + x[i]
@cute.jit
def double(x, y):
    kernel(x, y).launch(grid=[1, 1, 1], block=[32, 1, 1])
if not torch.cuda.is_available():
    raise SystemExit(3)
x, y = torch.arange(32.0, device="cuda"), torch.zeros(32, device="cuda")
double(x, y)
torch.testing.assert_close(y.cpu(), 2 * x.cpu())
print("PASS")
""",
    "asserts": "assert False, 'the sum is wrong'\n",
    "leaves": "raise SystemExit(2)\n",
    "raises": "raise KeyError('dim')\n",
    "says": "print('kernel 4: FAILED (max_err=3.23e-02)')\n",
    "dies": "import os; os._exit(7)\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "cutlass" / EXAMPLES / PRIMITIVES
    folder.mkdir(parents=True)
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    return tmp_path / "cutlass"


def test_all_cases_have_names_of_their_own_and_the_goal_is_in_reach():
    names = [case.name for case in SCRIPTS]
    assert len(set(names)) == len(names)
    assert len({case.path for case in SCRIPTS if case.expected == "pass"}) >= 38


def test_cases_are_chosen_by_name(checkout):
    assert [case.name for case in cases(checkout, ("good", "dies"))] == ["dies", "good"]
    assert all(case.primitive for case in cases(checkout, ("good",)))
    with pytest.raises(ValueError, match="no case is named nothing; known: fp16_gemm_0, "):
        cases(checkout, ("good", "nothing"))
    with pytest.raises(ValueError, match="it must be a checkout of NVIDIA/cutlass"):
        cases(checkout / "examples")


def test_every_end_of_a_script_is_a_verdict(checkout, tmp_path, capsys):
    code = main(["--cutlass", str(checkout), "--logs", str(tmp_path / "logs"), *SOURCES])
    assert code == 1
    printed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    verdicts = {name: printed[name].split()[2] for name in SOURCES}
    assert verdicts == {
        "good": "pass",
        "asserts": "fail",
        "leaves": "fail",
        "raises": "error",
        "says": "fail",
        "dies": "crash",
    }
    assert "cos 1.000000000 rel_rms 0" in printed["good"] and " 0 wi" not in printed["good"]
    assert "the sum is wrong" in printed["asserts"] and "exit code 2" in printed["leaves"]
    assert "KeyError: 'dim'" in printed["raises"] and "the process ended with 7" in printed["dies"]
    assert "it says: kernel 4: FAILED (max_err=3.23e-02)" in printed["says"]
    kept = latest(cases(checkout, ("good", "asserts")), tmp_path / "logs")
    assert kept is not None and [(case.name, outcome.verdict) for case, outcome in kept] == [
        ("asserts", "fail"),
        ("good", "pass"),
    ]
    assert {outcome.sources for _, outcome in kept} == {sources()} and len(sources()) == 12
    assert latest(cases(checkout), tmp_path / "logs") is None
    assert "PASS" in (tmp_path / "logs" / "good.log").read_text()
    assert "1 of 6 primitives pass. Not as expected: asserts, dies, leaves, raises, says." in " ".join(
        printed["0"].split()
    )


def test_a_script_without_an_end_is_stopped(checkout, tmp_path):
    case = Case("sleeps", f"{PRIMITIVES}/sleeps.py", seconds=1)
    (checkout / EXAMPLES / case.path).write_text("import time; time.sleep(600)\n")
    assert run_apart(checkout, case, tmp_path).verdict == "timeout"


def test_bad_arguments_are_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--cutlass", str(tmp_path)])
    assert "it must be a checkout of NVIDIA/cutlass" in capsys.readouterr().err.splitlines()[-1]


def test_the_page():
    good = Outcome(cos=1.0, rel_rms=1.25e-3, max_error=0.5, comparisons=1, launches=2, instructions=12345, seconds=3.21)
    rows = [
        (Case("a", "cute/a.py", "--mnk 1,2,3"), good),
        (
            Case("b", "cute/b.py", expected="MemoryFault", note="reads past its end"),
            Outcome("MemoryFault", "read | at"),
        ),
        (Case("c", f"{PRIMITIVES}/tma/c.py"), Outcome("error", "KeyError: 'a|b'\nmore", constant=True)),
    ]
    for _, outcome in rows:
        outcome.sources = "digest"
    text = page(rows, "commit abc", "4.8.1", "digest")
    assert "earlier sources" not in text
    assert "3 of the 3 results were obtained with earlier sources" in page(rows, "commit abc", "4.8.1", "other")
    assert "1 of 2 scripts and 0 of 1 primitives pass. Not as expected: c." in text
    assert "| `cute/a.py --mnk 1,2,3` | sm_100a | pass | 1.000000000 | 0.0013 | 0.5 | 12,345 | 3.2 |  |" in text
    assert (
        "| `cute/b.py` | sm_100a | MemoryFault | – | – | – | 0 | 0.0 | reads past its end; launches nothing |" in text
    )
    assert "| `tma/c.py` |" in text and "KeyError: 'a\\|b'; its reference is one constant; launches nothing |" in text
    assert summary(rows[:1]) == "1 of 1 scripts and 0 of 0 primitives pass. Every verdict is the expected one."
    assert short(*rows[0]).split()[:3] == ["a", "sm_100a", "pass"]
