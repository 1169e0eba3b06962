"""What a person sees: live lines on a terminal, plain lines of at most 120 columns in a log, quiet and verbose."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import os
import pty
import re
import subprocess
from datetime import UTC, datetime

import pytest

from gate import table
from gate.listing import ago
from tests.gate.conftest import cases_yaml

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\]8;[^\x1b]*\x1b\\")


def test_log_is_plain_and_at_most_120_columns_wide(project):
    done = project.run("--falsify", FORCE_COLOR="")
    assert done.code == 0 and "\x1b" not in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 120
    lines = done.out.splitlines()
    assert lines[1].startswith("scale  1.7 times the input comes out, with its row sums  ·  sm100, emulated sm_100a")
    assert lines[2].split() == ["case", "seed", "output", "diff", "allowed", "torch", "cos", "insts", "time"]
    assert sum(line.endswith("  pass") for line in lines) == 2 and "  … seed 1: 2 pass" in lines
    assert "  same bits 3× under in_order and latest: yes" in lines and "  wrong variants rejected: 2 of 2" in lines


def test_quiet_is_one_line_a_gate(project):
    done = project.run("-q")
    assert re.fullmatch(
        r"PASS  scale  sm100  4/4 cases  worst y\.diff 1\.\de-06, allowed 2\.\de-06  \d\.\d s  emulated sm_100a\n",
        done.out,
    )


def test_verbose_shows_every_case_output_and_limit(project):
    done = project.run("-v")
    assert sum(line.endswith("  pass") for line in done.out.splitlines()) == 4 and "… seed" not in done.out
    assert re.search(
        r"y \(32, 64\) bfloat16: allowed diff 1\.0e-05, vs_torch \d\.\de-06, cos 0\.9999 \(against ideal\)", done.out
    )
    assert "compiled 1, built 1, launches 1, syncs 0, compiles 0" in done.out
    assert re.search(r"rel_rms \d\.\de-0\d, max_abs \d\.\de-0\d, 0 unequal", done.out)


def on_terminal(project, *arguments, columns=120, **environment):
    """Run on a pseudo-terminal and give what it was sent, and the exit code."""
    parent, child = pty.openpty()
    environment = project.environment(TERM="xterm-256color", COLUMNS=str(columns), LINES="40", **environment)
    process = subprocess.Popen(
        project.command(*arguments), stdin=child, stdout=child, stderr=child, cwd=project.root, env=environment
    )
    os.close(child)
    data = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    os.close(parent)
    return data.decode(), process.wait(timeout=60)


@pytest.fixture
def slow_project(project):
    project.edit("kernels/scale.py", "    time.sleep(60)", "    time.sleep(1)")
    return project.write(cases_yaml(["{id: quick, m: 96, n: 64}", "{id: slow, m: 96, n: 64, fault: sleeps}"]))


def test_terminal_shows_running_cases_and_their_step_and_takes_them_away(slow_project):
    sent, code = on_terminal(slow_project)
    assert code == 0
    text = ANSI.sub("", sent)
    assert re.search(r"\d of 2 cases done, [12] running", text)
    assert re.search(r"scale\[slow-s0-sm100\]\s+run\s+\d\.\d s", text)
    assert text.rstrip().splitlines()[-1].endswith("build/gates/latest/report.html")
    assert "\x1b[32m" in sent  # green


@pytest.mark.parametrize(("arguments", "environment"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})])
def test_colours_can_be_switched_off(slow_project, arguments, environment):
    sent, code = on_terminal(slow_project, *arguments, **environment)
    assert code == 0 and not re.search(r"\x1b\[[0-9;]*3[0-7]m", sent)


def test_plain_format_has_no_live_lines_on_a_terminal(slow_project):
    sent, code = on_terminal(slow_project, "--format", "plain")
    assert code == 0 and "running" not in sent


def test_gates_are_printed_in_ladder_order_whatever_ends_first(slow_project):
    later = cases_yaml(["{id: a, m: 96, n: 64}"], gate="later").partition("gates:\n")[2]
    slow_project.write((slow_project.root / "gates.yaml").read_text() + later)
    done = slow_project.run("-j", "2")
    ends = [line.split()[1] for line in done.out.splitlines() if line.startswith("PASS")]
    assert ends == ["scale", "later"]
    heads = [line.split()[0] for line in done.out.splitlines() if "emulated sm_100a" in line and "·" in line]
    assert heads == ["scale", "later"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (1.234e-6, "1.2e-06"), (5.0, "5.0e+00"), (float("inf"), "inf")]
)
def test_number(value, text):
    assert table.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (41.2, "41 s"), (200, "3 min 20 s"), (119.4, "119 s")]
)
def test_seconds(value, text):
    assert table.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (9_999, "9999"), (14_200, "14.2 k"), (1_150_000, "1.15 M")]
)
def test_count(value, text):
    assert table.count(value) == text


@pytest.mark.parametrize(
    ("passed", "text"), [(0, "just now"), (59, "just now"), (61, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago"), (-5, "just now")]
)  # fmt: skip
def test_ago(passed, text):
    then = datetime(2026, 1, 1, tzinfo=UTC)
    now = datetime.fromtimestamp(then.timestamp() + passed, UTC)
    assert ago("2026-01-01T00:00:00Z", now) == text
