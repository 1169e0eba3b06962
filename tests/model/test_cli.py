"""run_decode.py as its users meet it: text on standard output, all else beside it, exit codes, errors with values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model import cli, decoding, demo, report
from model.checkpoint import random_tensors, write
from model.config import Config
from model.ops import GATES


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def checkpoint(home: Path, config: Config) -> Path:
    """Without a tokenizer."""
    return write(home / "plain", config, random_tensors(config, 3), "bf16")


@pytest.fixture
def call(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command line in this process; gives exit code, standard output and standard error."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(home))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*argv: str, ledger=lambda arch, on: {}) -> tuple[int, str, str]:
        code = cli.main(argv, ledger)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_without_arguments_it_makes_a_model_and_streams_text(root: Path, home: Path) -> None:
    environment = os.environ | {"WORKBENCH_CACHE": str(home), "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "run_decode.py", "--max-new", "5"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n") and len(done.stdout) > 1
    assert "0 of 19 operations on kernels" in done.stderr and all(op in done.stderr for op in GATES)
    assert "1 a token" in done.stderr and "tokens/s" in done.stderr
    assert [p.name for p in (home / "models").iterdir()] == [demo.folder().name] or (home / "models").is_dir()


def test_the_small_model_is_made_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(home))
    folder = demo.folder()
    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    assert demo.folder() == folder and {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == before
    assert {"config.json", "tokenizer.json"} < set(before)
    assert not [p for p in folder.parent.iterdir() if p.name.startswith(".")]


def test_report_holds_what_was_measured(call, tmp_path: Path) -> None:
    code, out, err = call("--max-new", "6", "--report", str(tmp_path / "r"), "--ignore-eos")
    assert code == 0 and "result.json" in err
    found = json.loads((tmp_path / "r" / "result.json").read_text())
    turn = found["turns"][0]
    assert turn["text"].strip() == out.strip() and len(turn["ids"]) == 6 and turn["ended_by"] == "max_new"
    assert found["per_token"]["syncs"] == 1 and found["per_token"]["launches"] > 100
    assert found["per_token"]["bytes"]["total"] > found["per_token"]["bytes"]["weights"] > 1e6
    assert found["seconds"]["timed_tokens"] == 4 and found["tokens_per_second"] > 0
    assert {row["op"] for row in found["ops"]} == set(GATES)
    assert found["memory"]["weights"] > 1e7 and found["memory"]["peak"] > found["memory"]["weights"]
    summary = (tmp_path / "r" / "summary.md").read_text()
    assert "| embed | oracle | embedding | no kernel yet |" in summary and turn["text"].splitlines()[0] in summary


def test_ids_in_and_out_and_the_same_seed_the_same_ids(call, checkpoint: Path) -> None:
    common = ("--checkpoint", str(checkpoint), "--prompt", "ids:0 5, 7", "--max-new", "5", "-q", "--ignore-eos")
    first = call(*common, "--temperature", "2", "--seed", "4")
    assert first[0] == 0 and first[2] == ""
    assert len(first[1].split()) == 5 and all(0 <= int(t) < 512 for t in first[1].split())
    assert call(*common, "--temperature", "2", "--seed", "4") == first
    assert call(*common, "--temperature", "2", "--seed", "5")[1] != first[1]


def test_drafts_change_the_speed_and_not_the_text(call, checkpoint: Path) -> None:
    common = ("--checkpoint", str(checkpoint), "--prompt", "ids:0 9", "--max-new", "7", "--ignore-eos")
    plain, drafted = call(*common, "-q"), call(*common, "--mtp", "--drafts", "2")
    assert plain[0] == drafted[0] == 0 and plain[1] == drafted[1]
    assert "guesses accepted" in drafted[2]


@pytest.mark.parametrize("mode", ["chat", "thinking"])
def test_turns_of_a_conversation(call, mode: str, tmp_path: Path) -> None:
    code, out, _ = call(
        "--mode", mode, "--prompt", "Hi", "--prompt", "Why", "--max-new", "4", "--report", str(tmp_path), "--ignore-eos"
    )
    found = json.loads((tmp_path / "result.json").read_text())
    assert code == 0 and len(found["turns"]) == 2
    first, second = (turn["prompt_tokens"] for turn in found["turns"])
    assert second > first and found["tokens"]["reused"] == (first + 3 if mode == "chat" else first - 1)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--prompt", "ids:0 512"], "prompt: token id 512; allowed: 0..511"),
        (["--prompt", "ids:0 x"], "prompt: 'x' is no token id"),
        (["--prompt", "ids:"], "'ids:' without a token id"),
        (["--prompt", "Hi"], "the checkpoint has no tokenizer.json"),
        (["--prompt", "ids:" + "5 " * 300, "--tokens", "200"], "300 prompt tokens, 64 new ones"),
        (["--prompt", "ids:0", "--tokens", "0"], "'0' is not a whole number from 1"),
        (["--prompt", "ids:0", "--drafts", "2"], "--drafts 2 has a meaning only with --mtp"),
        (["--prompt", "ids:0", "--temperature", "-1"], "temperature=-1.0; allowed: a finite number from 0"),
        (["--prompt", "ids:0", "--prompt", "ids:1"], "2 times --prompt are turns"),
        (["--prompt", "ids:0", "--mode", "chat"], "is ids, which --mode chat cannot lay out"),
        (["--prompt", "ids:0", "--device", "tpu9"], "--device tpu9"),
        (["--prompt", "ids:0", "--config", "flash"], "found"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_bad_input_is_refused_with_its_values(call, checkpoint: Path, flags: list[str], said: str) -> None:
    code, out, err = call("--checkpoint", str(checkpoint), "-q", *flags)
    assert code == cli.EXIT_USAGE and out == "" and said in err and "Traceback" not in err


def test_missing_checkpoints_are_named(call, tmp_path: Path) -> None:
    code, _, err = call("--checkpoint", str(tmp_path / "no"))
    assert code == cli.EXIT_USAGE and str(tmp_path / "no") in err
    code, _, err = call("--config", "flash")
    assert code == cli.EXIT_USAGE and "--config flash needs --checkpoint" in err


def test_a_model_without_a_draft_block_says_so(call, home: Path, config: Config) -> None:
    plain = config.with_ratios(0)
    folder = write(home / "no_mtp", plain, random_tensors(plain), "bf16")
    code, _, err = call("--checkpoint", str(folder), "--prompt", "ids:0", "--mtp", "-q")
    assert code == cli.EXIT_USAGE and "no block of multi-token prediction" in err


def test_interrupts_and_faults_have_their_own_codes(call, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, code in ((KeyboardInterrupt(), 2), (ZeroDivisionError(), 3), (RuntimeError("CUDA error: x"), 1)):

        def fail(options, ledger, error=error):
            raise error

        monkeypatch.setattr(decoding, "decode", fail)
        assert call("-q")[0] == code


def test_what_is_proven_reaches_the_table(call) -> None:
    asked = []

    def ledger(arch: str, on: str) -> dict[str, bool]:
        asked.append((arch, on))
        return {}

    assert call("--max-new", "1", "--arch", "sm90", "--device", "cpu", ledger=ledger)[0] == 0
    assert asked == [("sm90", "emulated")]


def test_sizes_are_short() -> None:
    assert [report.size(n) for n in (0, 999, 1500, 2.345e6, 11.218e9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.35 MB",
        "11.2 GB",
    ]
