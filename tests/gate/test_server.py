"""Processes: time limits, interrupts, dead workers; whatever dies, the report is written and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.gate.conftest import cases_yaml


def alive(project) -> list[int]:
    """Processes that belong to a run of this project."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().decode()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(project.root) in command and state != "Z" and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def wait_until(condition, seconds=20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def start(project, *arguments):
    """The command line in the background, in a process group of its own like a job of a shell, which hears SIGINT even
    where the tests were started by something that ignores it."""
    return subprocess.Popen(
        project.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=project.root,
        env=project.environment(), start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def running(project, case):
    """Whether the case has begun to run: its log has what the stage prints first."""
    logs = list(project.root.glob(f"build/gates/*/cases/scale/{case}-*/stdout.txt"))
    return any("sX" in log.read_text() for log in logs)


SLEEPER = ["{id: quick, m: 96, n: 8}", "{id: slow, m: 96, n: 8, fault: sleeps}", "{id: after, m: 96, n: 8}"]


def test_timeout_kills_the_case_keeps_its_stack_and_the_run_goes_on(project):
    project.write(cases_yaml(SLEEPER))
    begin = time.monotonic()
    done = project.run("--timeout", "1", "-j", "1")
    assert time.monotonic() - begin < 30
    assert done.code == 1
    slow = done.case("slow")
    assert (slow["status"], slow["step"]) == ("timeout", "run")
    assert slow["message"] == "not done after 1 s, killed in step run"
    assert "_sleeps" in slow["tail"] and 1 <= slow["seconds"]["total"] < 5
    assert [done.case(c)["status"] for c in ("quick", "after")] == ["pass", "pass"]
    assert wait_until(lambda: alive(project) == [])


@pytest.mark.parametrize("times", [1, 3])
def test_interrupt_writes_the_report_and_exits_with_2(project, times):
    project.write(cases_yaml(SLEEPER))
    process = start(project, "-j", "1")
    assert wait_until(lambda: running(project, "slow"))
    for _ in range(times):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2, out + err
    folder = (project.root / "build" / "gates" / "latest").resolve()
    result = json.loads((folder / "result.json").read_text())
    assert result["run"]["interrupted"] is True
    assert [(c["case"], c["status"], c.get("reason")) for c in result["cases"]] == [
        ("quick", "pass", None),
        ("slow", "skipped", "interrupted"),
        ("after", "skipped", "interrupted"),
    ]
    assert {"report.html", "summary.md", "junit.xml"} <= {p.name for p in folder.iterdir()}
    assert "interrupted: the report holds what had ended" in out
    assert wait_until(lambda: alive(project) == [])


def test_killed_parent_leaves_nobody_behind(project):
    project.write(cases_yaml(SLEEPER))
    process = start(project, "-j", "1")
    assert wait_until(lambda: running(project, "slow"))
    assert len(alive(project)) >= 3
    process.kill()
    process.communicate()
    assert wait_until(lambda: alive(project) == [])


def test_killed_worker_loses_its_case_only(project):
    project.write(cases_yaml(SLEEPER))
    process = start(project, "-j", "1")
    assert wait_until(lambda: running(project, "slow"))
    # the worker is the child of the command line; the case is the child of the worker
    children = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in alive(project)}
    (worker,) = [pid for pid, parent in children.items() if parent == process.pid]
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    result = json.loads((project.root / "build" / "gates" / "latest" / "result.json").read_text())
    slow = next(c for c in result["cases"] if c["case"] == "slow")
    assert slow["status"] == "runtime_error" and slow["message"] == "the worker process ended (killed by SIGKILL)"
    assert [c["status"] for c in result["cases"] if c["case"] != "slow"] == ["pass", "pass"]
    assert wait_until(lambda: alive(project) == [])


def test_backend_that_cannot_be_made_is_said_by_every_case(project):
    (project.root / "backends" / "broken").touch()
    done = project.run("-k", "m32")
    assert done.code == 1
    assert {c["status"] for c in done.result["cases"]} == {"runtime_error"}
    assert (
        "backend emulated sm100: RuntimeError: no C++ compiler found (g++ or clang++)"
        in done.case("m32", seed=0)["message"]
    )


def test_missing_dsl_is_said_in_one_line_and_the_oracle_still_works(project):
    (project.root / "cutlass" / "__init__.py").write_text("raise ModuleNotFoundError('no cutlass', name='cutlass')\n")
    project.edit("kernels/scale.py", "import torch\n", "import cutlass\nimport torch\n")
    done = project.run("-k", "m32-s0")
    assert done.code == 1 and done.case("m32")["status"] == "compile_error"
    text = "kernels need nvidia-cutlass-dsl (pip install -e .); --oracle-only works without it"
    assert done.case("m32")["message"] == text


def test_worker_that_cannot_start_ends_the_run(project):
    (project.root / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = project.run()
    assert done.code == 4
    assert "the worker process ended (exit code 1)" in done.err and "no torch here" in done.err


def test_what_a_case_starts_dies_with_it(project):
    project.edit("kernels/scale.py", "    time.sleep(60)", f"    os.system('sleep 61 # {project.root}')")
    project.write(cases_yaml(SLEEPER[1:2]))
    done = project.run("--timeout", "1")
    assert done.case("slow")["status"] == "timeout"
    assert wait_until(lambda: alive(project) == [])


def test_cases_run_at_once_and_later_gates_wait_for_their_needs(project):
    project.edit("kernels/scale.py", "    time.sleep(60)", "    time.sleep(1.5)")
    slow = "{id: slow%d, m: 96, n: 8, fault: sleeps}"
    first = cases_yaml([slow % i for i in range(4)], gate="first")
    second = cases_yaml(["{id: a, m: 96, n: 8}"], gate="second", more="    needs: [first]\n").partition("gates:\n")[2]
    project.write((first + second).replace("repeat: 3", "repeat: 1"))
    done = project.run("-j", "4")
    assert done.code == 0
    spent = sum(case["seconds"]["total"] for case in done.result["cases"])
    assert spent > 12 > done.result["run"]["seconds"]
    ends = [line.split()[1] for line in done.out.splitlines() if line.startswith("PASS")]
    assert ends == ["first", "second"]
