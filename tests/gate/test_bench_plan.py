"""The `bench:` block of gates.yaml, the flags of --bench, and what they select."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import pytest

from gate import machine
from gate.bench.plan import BenchJob, plan, profiler
from gate.errors import BadFile, EmptySelection, UsageError
from gate.load import load, parse
from gate.machine import Gpu
from gate.options import parse as flags
from tests.gate.conftest import cases_yaml

BENCH = """    bench:
      bytes: m * n * 2
      at_most: 1.5
      warm: [x]
      cases:
        - {id: small, m: 4, n: 64, at_most: 1.3, at_most_us: 3, peers: {Other: 4.5}}
        - {id: large, m: 64, n: 64, floor: copy, bytes: sum(m) * n * 4, warm: []}
"""
CASE = ["{id: a, m: 4, n: 8}"]


def gates_with(bench: str, tmp_path, **more):
    return parse(cases_yaml(CASE, more=bench, **more), tmp_path)


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: (Gpu("NVIDIA H200", "sm90", "580"),))


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: (Gpu("NVIDIA B200", "sm100", "580"),))


def test_jobs_take_what_the_case_has_not_from_the_block(tmp_path, gpu):
    found = plan(gates_with(BENCH, tmp_path), flags(["--bench", "--seed", "3", "--timeout", "7"]))
    assert found.skipped == [] and found.notes == []
    small, large = found.jobs
    assert small == BenchJob(
        gate="scale", stage="scale", case="small", arch="sm100", fields={"m": 4, "n": 64}, bytes=512, floor="read",
        at_most=1.3, at_most_us=3.0, warm=["x"], peers={"Other": 4.5}, seed=3, timeout_s=7.0,
        where={"case": "gates.yaml:18:11"},
    )  # fmt: skip
    assert (large.bytes, large.floor, large.at_most, large.at_most_us, large.warm) == (16384, "copy", 1.5, None, [])
    assert large.label == "scale[large-sm100]"


def test_k_selects_by_label_and_says_what_there_is(tmp_path, gpu):
    gates = gates_with(BENCH, tmp_path)
    assert [job.case for job in plan(gates, flags(["--bench", "-k", "large and sm100"])).jobs] == ["large"]
    with pytest.raises(EmptySelection, match="-k 'huge' matches no bench case; there are: small large"):
        plan(gates, flags(["--bench", "-k", "huge"]))


def test_gates_without_a_bench_are_named(tmp_path, gpu):
    text = cases_yaml(CASE, more=BENCH) + cases_yaml(CASE, gate="other").partition("gates:\n")[2]
    gates = parse(text, tmp_path)
    assert plan(gates, flags(["scale", "other", "--bench"])).notes == ["other: no bench in gates.yaml"]
    assert plan(gates, flags(["--bench"])).notes == []
    with pytest.raises(EmptySelection, match="no bench case in gates.yaml for other"):
        plan(gates, flags(["other", "--bench"]))


def test_without_a_gpu_one_line_says_so(project):
    project.write(cases_yaml(CASE, more=BENCH))
    done = project.run("scale", "--bench")
    assert done.code == 5 and done.folder is None and done.out == ""
    assert done.err == "run_gate.py: --bench needs a GPU: arch sm100 on gpu: this machine has no GPU.\n"


def test_a_bench_function_has_three_arguments(project):
    project.write(cases_yaml(CASE, more=BENCH))
    path = project.root / "stages" / "scale.py"
    path.write_text(path.read_text() + "\n\ndef bench(x, backend):\n    return run\n")
    done = project.run("scale", "--bench")
    assert done.code == 4 and done.folder is None
    assert "bench(x, backend) has other arguments than the contract; wanted: def bench(x, case, backend)" in done.err


def test_architectures_that_are_not_here_are_skipped(tmp_path, h200):
    text = cases_yaml(CASE, more=BENCH).replace("arch: [sm100]", "arch: [sm100, sm90]")
    found = plan(parse(text, tmp_path), flags(["--bench"]))
    assert [job.arch for job in found.jobs] == ["sm90", "sm90"]
    assert {reason for _, reason in found.skipped} == {"arch sm100 on gpu: this GPU is sm90 (NVIDIA H200)."}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bytes: m * n * 2", "bytes: m * q * 2", "gates.yaml:14:14: gates.scale.bench.bytes: case 'small': 'm * q * 2' needs the field 'q' as a number, got None"),
        ("bytes: m * n * 2", "bytes: m - 4", "gates.yaml:14:14: gates.scale.bench.bytes: case 'small': 'm - 4' is less than one byte"),
        ("bytes: sum(m) * n * 4", "bytes: sum(3)", "gates.yaml:19:57: gates.scale.bench.cases.1.bytes: case 'large': 'sum(3)' is not arithmetic"),
        ("      bytes: m * n * 2\n", "", "gates.yaml:17:11: gates.scale.bench.cases.0: case 'small' has no 'bytes', and neither has the bench"),
        ("id: large", "id: small", "gates.yaml:19:16: gates.scale.bench.cases.1.id: case id 'small' is used twice"),
        ("at_most: 1.5", "at_mots: 1.5", "gates.yaml:15:7: gates.scale.bench.at_mots: unknown key 'at_mots' (did you mean 'at_most'?)"),
        ("at_most: 1.5", "at_most: 0", "gates.yaml:15:16: gates.scale.bench.at_most: must be greater than 0, got 0"),
        ("floor: copy", "floor: sum", "gates.yaml:19:44: gates.scale.bench.cases.1.floor: 'sum' is not allowed; allowed: read, copy"),
        ("Other: 4.5", "Other: fast", "gates.yaml:18:80: gates.scale.bench.cases.0.peers.Other: must be a number, got 'fast'"),
        ("at_most: 1.5", "canaries: linear", "gates.yaml:18:11: gates.scale.bench.cases.0: canaries need the field 'k' of case 'small' as a number, got None"),
    ],
)  # fmt: skip
def test_mistakes_in_the_block_have_a_line(tmp_path, old, new, said):
    assert old in BENCH
    with pytest.raises(BadFile) as caught:
        gates_with(BENCH.replace(old, new), tmp_path)
    assert any(line.startswith(said) for line in str(caught.value).splitlines()), str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--bench --oracle-only", "--bench runs kernels, --oracle-only runs none: give one of them"),
        ("--bench --sanitize", "--sanitize needs the emulator, --bench a GPU: give one of them"),
        ("--bench --schedules 3", "--schedules needs the emulator, --bench a GPU"),
        ("--bench --replay x.json", "--replay needs the emulator, --bench a GPU"),
        ("--bench --view tmem", "--view needs the emulator, --bench a GPU"),
        ("--bench --falsify", "--falsify judges kernels, --bench times them: give one of them"),
        ("--bench --debug ptx", "--debug ptx shows a case that is judged"),
        ("--bench --resume", "--resume leaves out cases that pass; --bench has to run them"),
        ("--bench --lf", "--lf goes by the ledger"),
        ("--bench --on emulator", "--bench needs a GPU: the emulator has no time"),
        ("--save a", "--save is for times: give --bench too"),
        ("--compare a", "--compare is for times: give --bench too"),
        ("--bench --fail-slower 3%", "--fail-slower says how much slower than --compare NAME"),
        ("--bench --compare a --fail-slower 3", "'3' is not a percentage from 0%, such as 15%"),
        ("--bench --compare a --fail-slower=-3%", "'-3%' is not a percentage"),
        ("--bench --compare a --fail-slower nan%", "'nan%' is not a percentage"),
        ("--bench --save ../a", "'../a' is no name"),
        ("--bench --save .", "'.' is no name"),
    ],
)
def test_flags_that_make_no_sense(given, said):
    with pytest.raises(UsageError) as caught:
        flags(given.split())
    assert said in str(caught.value)


def test_flags_that_do():
    options = flags("scale --bench --on gpu --save a.1 --compare b --fail-slower 2.5% -x -j 2".split())
    assert (options.bench, options.save, options.compare, options.fail_slower) == (True, "a.1", "b", 2.5)
    assert flags(["scale"]).bench is False


def test_profilers_are_known_by_their_environment():
    assert profiler({}) is None
    assert profiler({"NSYS_PROFILING_SESSION_ID": "7"}) == "Nsight Systems"
    assert profiler({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": ""}) == "Nsight Compute"


def test_bench_of_this_tree_times_what_the_decode_reads(root):
    gates = load(root)
    benched = {name: gates[name].bench for name in gates.order if gates[name].bench}
    passes = {"quantize_nvfp4", "quantize_fp8", "rmsnorm_quantize", "swiglu_quantize", "rope", "qk_norm_rope"}
    assert set(benched) >= {"nvfp4_linear", "multi_linear", "grouped_linear", "mhc_post"} | passes
    linear = {(case.fields()["n"], case.fields()["k"], case.fields()["m"]) for case in benched["nvfp4_linear"].cases}
    shapes = [(1024, 4096), (512, 4096), (32768, 1024), (4096, 8192), (4096, 4096), (4096, 2048), (129280, 4096)]
    assert linear == {(n, k, m) for n, k in shapes for m in (1, 4, 16)}
    for name, bench in benched.items():
        free = [c.id for c in bench.cases if bench.of(c, "at_most") is None and bench.of(c, "at_most_us") is None]
        assert free in ([], ["t1_k7168_g_made"]), name
