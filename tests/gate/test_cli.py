"""The command line: exit codes, refusals with suggestions, and how little it imports."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.gate.conftest import ROOT, cases_yaml

HEAVY = ("torch", "cutlass", "numpy", "cuda")
_PROBE = """
import sys
from pathlib import Path
from gate.cli import main
try:
    code = main(sys.argv[2:], Path(sys.argv[1]))
except SystemExit as leave:
    code = leave.code
packages = {name.split(".")[0] for name in sys.modules}
print("IMPORTED", code, *sorted(packages & {"torch", "cutlass", "numpy", "cuda", "pydantic"}))
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--list"], 0),
        (["--list", "scale"], 0),
        (["scalee"], 4),
        (["scale", "-k", "nowhere"], 5),
        (["--nonsense"], 4),
        (["far"], 5),
        (["--on", "gpu"], 5),
    ],
)
def test_neither_torch_nor_cutlass_is_imported(project, arguments, code):
    command = [sys.executable, "-c", _PROBE, str(project.root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=project.environment(), timeout=60)
    words = done.stdout.splitlines()[-1].split()
    assert words[:2] == ["IMPORTED", str(code)], done.stderr
    assert not set(HEAVY) & set(words[2:])
    if arguments == ["--help"]:
        assert words[2:] == []


def test_broken_gates_yaml_is_refused_without_torch(project):
    project.edit("gates.yaml", "repeat: 3", "repeat: 0").edit("gates.yaml", "state: planned", "state: plannd")
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, str(project.root), "--list"], capture_output=True, text=True, env=project.environment()
    )  # fmt: skip
    assert done.stdout.split()[:2] == ["IMPORTED", "4"] and "torch" not in done.stdout
    assert done.stderr.splitlines() == [
        "gates.yaml:5:11: defaults.repeat: must be at least 1, got 0",
        "gates.yaml:24:3: gates.far.cases: missing key 'cases'",
        "gates.yaml:24:3: gates.far.limits: missing key 'limits'",
        "gates.yaml:27:12: gates.far.state: 'plannd' is not allowed; allowed: planned, building, gated",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["scal3"], 4, "no gate 'scal3'; did you mean scale? (--list shows 2)"),
        (["zebra"], 4, "no gate 'zebra' (--list shows 2)"),
        (["-k", "n512"], 5, "-k 'n512' matches no case of scale; cases: m32 m96"),
        (["-k", "and"], 4, "-k 'and', column 1: did not expect 'and'"),
        (["far"], 5, "far is only planned: there is nothing to run yet"),
        (["--arch", "sm80"], 4, "argument --arch: invalid choice: 'sm80'"),
        (["-j", "0"], 4, "'0' is not a whole number from 1"),
        (["--timeout", "-1"], 4, "'-1' is not a number of seconds above 0"),
        (["--timeout", "nan"], 4, "'nan' is not a number of seconds above 0"),
        (["--seed", "x"], 4, "'x' is not a whole number from 0"),
        (["--falsify", "--oracle-only"], 4, "--falsify runs kernels, --oracle-only runs none"),
        (["--oracle-only", "--on", "gpu"], 4, "--oracle-only runs no kernel"),
        (["--list", "--check"], 4, "--list and --check are different actions"),
        (["--falsif"], 4, "unrecognized arguments: --falsif"),
        (["--sanitize", "racechek"], 4, "no checker 'racechek'; there are: memcheck, initcheck, racecheck, synccheck"),
        (["--sanitize", "scale"], 4, "no checker 'scale'"),
        (["--sanitize", "memcheck,"], 4, "no checker ''"),
        (["--sanitize", "--oracle-only"], 4, "--sanitize runs kernels, --oracle-only runs none"),
        (["--sanitize", "--on", "gpu"], 4, "--sanitize needs the emulator"),
        (["--sanitize", "--resume"], 4, "--resume leaves out cases that pass; --sanitize has to run them"),
        (["--arch", "sm90"], 5, "--arch sm90: no selected gate is for it (scale)"),
    ],
)
def test_refusal(project, arguments, code, text):
    done = project.run(*arguments)
    assert done.code == code
    assert text in done.err
    assert "Traceback" not in done.err and done.folder is None


def test_prefix_is_enough_if_it_is_unique(project):
    project.write(
        cases_yaml(["{id: a, m: 96, n: 8}"], gate="scale_one")
        + cases_yaml(["{id: a, m: 96, n: 8}"], gate="scale_two").partition("gates:\n")[2]
    )
    done = project.run("scale")
    assert done.code == 4 and "'scale' is the beginning of several gates: scale_one, scale_two" in done.err
    done = project.run("scale_o", "-q")
    assert done.code == 0 and [g["gate"] for g in done.result["gates"]] == ["scale_one"]


def test_stage_that_breaks_the_contract_is_refused_before_anything_runs(project):
    project.edit("stages/scale.py", "def wrong(", "def wrongs(")
    done = project.run("scale")
    assert done.code == 4 and done.folder is None
    assert done.err.startswith("stages/scale.py:1:1: has no function 'wrong'; wanted: def wrong(x, case)")


def test_skips_are_named_and_exit_with_5_if_nothing_else_is_left(project):
    done = project.run("--on", "gpu")
    assert done.code == 5
    assert "arch sm100 on gpu: this machine has no GPU. Use --on emulator." in done.out
    assert {c["status"] for c in done.result["cases"]} == {"skipped"}


def test_internal_error_prints_a_traceback_and_exits_with_3(project):
    project.run("-q")
    (project.root / "build" / "gates" / "latest" / "result.json").write_text('{"schema": 1, "cases": 3}')
    done = project.run("--list")
    assert done.code == 3 and "Traceback" in done.err and "this is a bug in the gate itself" in done.err


def test_pass_falsify_json_junit_report_and_list(project):
    done = project.run("scale", "--falsify", "--json", "out.json", "--junit", "out.xml", "--report", "site")
    assert done.code == 0, done.out + done.err
    assert done.gate("scale")["status"] == "pass" and done.gate("scale")["falsified"]
    assert json.loads((project.root / "out.json").read_text()) == done.result
    assert "<testsuites" in (project.root / "out.xml").read_text()
    assert {p.name for p in (project.root / "site").iterdir()} == {
        "result.json",
        "report.html",
        "summary.md",
        "junit.xml",
    }
    assert "PASS  scale  sm100  4/4 cases" in done.out
    assert "mutants rejected: 3 of 3" in done.out and "blind: m32" in done.out
    listing = project.run("--list").out
    line = next(line for line in listing.splitlines() if line.startswith("scale"))
    assert "gated" in line and "pass  emulated sm_100a  4/4" in line and "blind: m32" in line
    assert "2 gates, 1 of them planned · gates.yaml ok · stages ok" in listing
    project.edit("kernels/scale.py", "1.7 * x.float()", "1.70 * x.float()")
    assert "pass (stale)  emulated sm_100a" in project.run("--list").out


def test_json_on_standard_output_leaves_it_clean(project):
    done = project.run("scale", "-k", "m32", "--json", "-")
    assert done.code == 0 and json.loads(done.out) == done.result
    assert "PASS  scale" in done.err


def test_stop_last_failed_and_resume(project):
    project.write(cases_yaml(["{id: bad, m: 96, n: 8, fault: zero}", "{id: good, m: 96, n: 8}"], seeds="[0, 1]"))
    done = project.run("-x", "-j", "1")
    assert done.code == 1
    assert [c["status"] for c in done.result["cases"]] == ["wrong_values", "skipped", "skipped", "skipped"]
    assert "stopped after the first failure, scale[bad-s0-sm100] (-x)" in done.out
    done = project.run("--lf")
    assert [(c["case"], c["seed"]) for c in done.result["cases"]] == [("bad", 0)]
    project.run("-k", "good", "-q")
    done = project.run("--resume")
    carried = [(c["case"], c["seed"]) for c in done.result["cases"] if c.get("resumed_from")]
    assert carried == [("good", 0), ("good", 1)] and done.code == 1
    project.edit("kernels/scale.py", "1.7 * x.float()", "1.70 * x.float()")
    assert not any(c.get("resumed_from") for c in project.run("--resume").result["cases"])


def test_another_seed_gives_other_data(project):
    done = project.run("--seed", "5", "-k", "m96")
    assert [(c["case"], c["seed"], c["status"]) for c in done.result["cases"]] == [("m96", 5, "pass")]
    other = project.run("--seed", "6", "-k", "m96")
    assert other.case("m96")["outputs"]["y"]["diff"] != done.case("m96")["outputs"]["y"]["diff"]


def test_last_failed_with_nothing_on_record_runs_everything_and_says_so(project):
    done = project.run("--lf")
    assert done.code == 0 and "--lf: no failure is on record here, so everything runs" in done.out
    assert len(done.result["cases"]) == 4


def test_oracle_only_runs_no_kernel_and_lists_blind_cases(project):
    (project.root / "kernels" / "scale.py").write_text("raise RuntimeError('no kernel yet')\n")
    project.edit("stages/scale.py", "from kernels.scale import scale\n", "")
    done = project.run("--oracle-only")
    assert done.code == 0, done.out
    assert {c["evidence"] for c in done.result["cases"]} == {"oracle only"}
    assert "blind  m32: tile_0_reused" in done.out
    assert "pass" not in next(line for line in project.run("--list").out.splitlines() if line.startswith("scale"))


def test_oracle_only_refuses_a_limit_that_no_kernel_can_meet(project):
    project.edit("gates.yaml", "diff: 1e-5", "diff: 1e-9")
    done = project.run("--oracle-only")
    assert done.code == 4
    assert "no kernel can pass: rounding the oracle to bfloat16 gives y.diff" in done.out


def test_needs_block_what_stands_on_a_failed_gate(project):
    first = cases_yaml(["{id: a, m: 96, n: 8, fault: zero}"], gate="first")
    second = cases_yaml(["{id: a, m: 96, n: 8}"], gate="second", more="    needs: [first]\n").partition("gates:\n")[2]
    project.write(first + second)
    done = project.run()
    assert done.code == 1
    assert [(g["gate"], g["status"]) for g in done.result["gates"]] == [
        ("first", "wrong_values"),
        ("second", "blocked"),
    ]
    assert "BLOCK second  sm100  needs first, which failed" in done.out
    done = project.run("second")
    assert done.code == 0
    assert any(n["what"] == "first (needed)" and "last result is fail" in n["why"] for n in done.result["not_checked"])


def test_building_gate_may_fail_and_must_not_pass(project):
    project.write(cases_yaml(["{id: a, m: 96, n: 8, fault: zero}"], more="    state: building\n"))
    done = project.run("-x")
    assert done.code == 0 and done.gate("scale")["status"] == "xfail" and done.case("a")["found"] == "wrong_values"
    project.edit("gates.yaml", ", fault: zero", "")
    done = project.run()
    assert done.code == 1 and "XPASS scale" in done.out and "remove `state: building`" in done.out


def test_gate_that_cannot_fail_is_not_green_with_falsify(project):
    project.edit("gates.yaml", "tile_zero: wrong_values", "none: wrong_values")
    done = project.run("--falsify")
    assert done.code == 1 and done.gate("scale")["status"] == "variant_accepted"
    assert "mutant none passes every case (m32, m96): the limit is too loose or the data too easy" in done.out


def test_unknown_mutant(project):
    project.edit("gates.yaml", "tile_zero: wrong_values", "tile_one: wrong_values")
    done = project.run("--falsify", "-k", "m32-s0")
    assert done.code == 1
    case = next(c for c in done.result["cases"] if c.get("mutant") == "tile_one")
    assert case["status"] == "contract_error" and "mutants/scale.py has no mutant 'tile_one'; it has" in case["message"]
    done = project.run("--check")
    assert done.code == 4 and "mutants/scale.py:1:1: no mutant tile_one; it has" in done.err


def test_check(project):
    done = project.run("--check")
    assert done.code == 0 and done.out == "gates.yaml ok: 2 gates · 1 stages ok\n"
    project.edit("stages/scale.py", "from kernels.scale import scale", "from kernels.scale import scales")
    done = project.run("--check")
    assert done.code == 4
    assert done.err.startswith("stages/scale.py:1:1: cannot be imported: ImportError: cannot import name 'scales'")
    project.edit("stages/scale.py", "def plain(", "def plane(")
    assert project.run("--check").err.startswith("stages/scale.py:1:1: has no function 'plain'")


def test_debug_shapes_and_ptx(project):
    done = project.run("-k", "m32-s0", "--debug", "shapes")
    assert "│ sX = ((32,1),2):((1,0),32)" in done.out
    done = project.run("-k", "m32-s0", "--debug", "ptx")
    (kept,) = done.case("m32")["artifacts"]
    assert (done.folder / kept).read_text().startswith(".version 8.8")
    assert str(done.folder / kept) in done.out


def test_run_gate_of_this_tree_is_a_door_to_the_same(project):
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_gate.py"), "--list", "fmha_qk"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "fmha_qk" in done.stdout
    assert len((ROOT / "run_gate.py").read_text().splitlines()) <= 20


def test_one_real_case_from_compile_to_verdict(tmp_path):
    command = [
        sys.executable,
        str(ROOT / "run_gate.py"),
        "fmha_qk",
        "-k",
        "n128-s0",
        "--json",
        str(tmp_path / "r.json"),
        "-q",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    case = next(c for c in json.loads((tmp_path / "r.json").read_text())["cases"] if c["case"] == "n128")
    assert case["status"] == "pass" and case["evidence"] == "emulated sm_100a"
    assert case["counts"]["launches"] == 1 and case["cost"]["instructions"] > 1000
    assert case["outputs"]["s"]["diff"] < 1e-10
