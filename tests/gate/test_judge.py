"""The judge against kernels that cheat: each ends in its own status, and the message says where. One run for all."""

from __future__ import annotations

import json

import pytest

from tests.gate.conftest import cases_yaml

# fault of the kernel -> status, step, words of the message
CHEATS = {
    "zero": ("wrong_values", "compare", "y is all zero, the oracle is not"),
    "half": ("wrong_values", "compare", "y.diff 2.0e-01, allowed"),
    "tile_zero": ("wrong_values", "compare", "y.diff"),
    "nan_block": ("not_finite", "compare", "y contains 1536 NaN, oracle 0; first y[0, 16]"),
    "unwritten": ("not_finite", "compare", "y contains 6144 NaN, oracle 0; first y[0, 0]"),
    "wide": ("wrong_dtype", "compare", "y is float32, promised is bfloat16"),
    "transposed": ("wrong_shape", "compare", "y has shape (64, 96), oracle (96, 64)"),
    "flat": ("wrong_shape", "compare", "y has shape (6144), oracle (96, 64)"),
    "changes_input": ("input_changed", "unchanged", "run() changed its input x"),
    "kept": ("not_repeatable", "repeat", "run 2 gave other bits: 6144 of 6144 elements of y, first y[0, 0]"),
    "noisy": ("not_repeatable", "repeat", "run 2 gave other bits: 1 of 6144 elements of y, first y[3, 5]"),
    "late": ("not_repeatable", "repeat", "run 3 (asynchronous work completing latest) gave other bits"),
    "two_launches": ("wrong_launches", "counts", "launched 2 kernels (fill, scale), allowed 1"),
    "sync": ("wrong_syncs", "counts", "made the host wait 1 time (item), allowed 0"),
    "compiles_always": ("wrong_compiles", "counts", "compiled 1 kernel, allowed 0"),
    "hang": ("hang", "run", "no warp can step and nothing is in flight after 520000 warp-instructions"),
    "unknown": ("unknown_instruction", "run", "tcgen05.cp.cta_group::1.128x256b"),
    "watchdog": ("timeout", "run", "stopped after 2000000 warp-instructions"),
    "fault": ("runtime_error", "run", "MemoryFault: read of 16 bytes at 0x10, 16 bytes past the end of x"),
    "raises": ("runtime_error", "run", "run() raised: ValueError: scale: n=3 is not supported"),
    "exits": ("runtime_error", "run", "left with exit code 7 in step run"),
    "segfault": ("runtime_error", "run", "killed by SIGSEGV in step run"),
    "does_not_compile": ("compile_error", "compile", "TypeError: expected a layout of rank 2, got rank 3"),
    "none": ("pass", None, None),
}


@pytest.fixture(scope="session")
def cheats(make_project):
    """All cheats in one run."""
    cases = [f"{{id: {fault}, m: 96, n: 64, fault: {fault}}}" for fault in CHEATS]
    project = make_project("cheats").write(cases_yaml(cases, more="    launches: 1\n    syncs: 0\n    compiles: 0\n"))
    return project.run("-j", "2")


@pytest.mark.parametrize("fault", CHEATS)
def test_cheat_is_found_out(cheats, fault):
    status, step, words = CHEATS[fault]
    case = cheats.case(fault)
    assert case["status"] == status
    assert case.get("step") == step
    assert words is None or words in case["message"]


def test_every_cheat_but_none_fails_and_the_run_goes_on(cheats):
    assert cheats.code == 1
    assert cheats.gate("scale")["passed"] == 1
    assert cheats.gate("scale")["total"] == len(CHEATS)


def test_where_it_is_wrong(cheats):
    y = cheats.case("tile_zero")["outputs"]["y"]
    assert y["first"] == [32, y["first"][1]] and y["first"][1] < 4
    assert y["worst"][0] >= 32
    assert "rows by 32 (warps): 0 99 99 %" in y["where"] and "rows 32–95 only" in y["where"]
    assert y["wrong"] > 4000
    assert y["failed"] == ["diff", "vs_torch", "cos"]
    assert y["error_map"]["percent"][0] == [0] * len(y["error_map"]["percent"][0])
    assert max(max(row) for row in y["error_map"]["percent"][-8:]) == 100
    assert cheats.case("nan_block")["outputs"]["y"]["where"].endswith("columns 16–31 only")


def test_looks_like_the_variant_with_its_hint_and_line(cheats):
    like = cheats.case("tile_zero")["looks_like"]
    assert like["variant"] == "tile_0_reused" and like["equal"]
    assert like["diff"] < 1e-5 < like["next_diff"]
    assert like["hint"] == "every load reads tile 0: check the slice that is indexed by the tile"
    assert like["place"].startswith("stages/scale.py:")
    assert not cheats.case("zero")["looks_like"]["equal"]


def test_last_state_of_the_dead_is_kept(cheats):
    assert "about to leave" in cheats.case("exits")["tail"]
    assert "_segfault" in cheats.case("segfault")["tail"]
    assert "gate/judge.py" not in cheats.case("segfault")["tail"]
    assert 'raise ValueError("scale: n=3' in cheats.case("raises")["tail"]


def test_hang_names_warp_line_and_barrier(cheats):
    message = cheats.case("hang")["message"]
    assert "CTA 0 warp  4  line   212  kv_full[0] phase 1, 0 of 1 arrived  (sm100.py:148)" in message


def test_pass_carries_measures_counts_and_cost(cheats):
    case = cheats.case("none")
    y = case["outputs"]["y"]
    assert 1e-7 < y["diff"] == y["rounding"] < 1e-5
    assert y["allowed"]["vs_torch"] == pytest.approx(2 * max(y["torch"], y["rounding"]))
    assert case["repeats"] == 3 and case["repeat_equal"] and case["policies"] == ["in_order", "latest"]
    assert case["counts"] == {"compiled": 1, "built": 1, "launches": 1, "syncs": 0, "compiles": 0}
    assert case["cost"]["instructions"] == 1000 and case["cost"]["by_warp"] == {"0": 100, "1": 900}
    assert case["cost"]["smem_bytes"] == 1024 + 2048
    assert case["variants"] == {"tile_0_reused": "wrong_values", "scale_missing": "wrong_values"}
    assert case["evidence"] == "emulated sm_100a"


def test_results_are_strict_json(cheats):
    text = (cheats.folder / "result.json").read_text()

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(text, parse_constant=refuse)["schema"] == 1


BROKEN_STAGES = {
    "extra_output": ('return {"y": y, "total": y.sum(-1)}', 'return {"z": y, "y": y, "total": y.sum(-1)}'),
    "no_total": ('return {"y": y, "total": y.float().sum(-1)}', 'return {"y": y}'),
    "list_inputs": (
        'return {"x": (torch.randn(case.m, case.n, generator=rng) + 0.3).to(torch.bfloat16)}',
        "return [0]",
    ),
    "variant_extra": ('"scale_missing": {"y"', '"scale_missing": {"q"'),
    "oracle_raises": ('return {"y": y, "total": y.sum(-1)}', 'raise KeyError("gone")'),
}


@pytest.fixture(scope="session")
def mistakes(make_project):
    """Stages that break the contract, in one run."""
    project = make_project("mistakes")
    stage = (project.root / "stages" / "scale.py").read_text()
    entries = ["version: 1", "defaults: {seeds: [0], timeout_s: 20}", "gates:"]
    for name, (old, new) in BROKEN_STAGES.items():
        assert old in stage, name
        (project.root / "stages" / f"{name}.py").write_text(stage.replace(old, new, 1))
        entries += _entry(name, "{id: a, m: 8, n: 8}", ["y", "total"])
    (project.root / "stages" / "scale.py").unlink()
    for name, case, limits in (
        ("field_missing", "{id: a, m: 8}", ["y", "total"]),
        ("field_unused", "{id: a, m: 8, n: 8, heads: 2}", ["y", "total"]),
        ("limit_missing", "{id: a, m: 8, n: 8}", ["y"]),
        ("limit_extra", "{id: a, m: 8, n: 8}", ["y", "total", "lse"]),
    ):
        (project.root / "stages" / f"{name}.py").write_text(stage)
        entries += _entry(name, case, limits)
    project.write("\n".join(entries) + "\n")
    return project.run("-j", "2")


def _entry(name, case, limits):
    return [
        f"  {name}:",
        "    about: breaks the contract",
        "    arch: [sm100]",
        f"    cases: [{case}]",
        f"    limits: {{{', '.join(f'{limit}: {{vs_torch: 4}}' for limit in limits)}}}",
    ]


MISTAKES = {
    "extra_output": "stages/extra_output.py: oracle() returned outputs total, y, z; plain() returned total, y",
    "no_total": "stages/no_total.py: oracle() returned outputs total, y; plain() returned y",
    "list_inputs": "stages/list_inputs.py: inputs() must return a dict of tensors, returned list",
    "oracle_raises": "stages/oracle_raises.py: oracle() raised KeyError: 'gone'",
    "variant_extra": "stages/variant_extra.py: wrong()['scale_missing'] has output q, which oracle() has not",
    "field_missing": "case 'a' has no field 'n' (stages/field_missing.py:",
    "field_unused": "case 'a' has the field 'heads', which no function of stages/field_unused.py asks for",
    "limit_missing": "limit_missing has output 'total' without a limit",
    "limit_extra": "limit_extra has a limit for 'lse', which is no output; outputs: total, y",
}


@pytest.mark.parametrize("gate", MISTAKES)
def test_contract_error_names_file_and_fault(mistakes, gate):
    case = next(c for c in mistakes.result["cases"] if c["gate"] == gate)
    assert case["status"] == "contract_error"
    assert MISTAKES[gate] in case["message"]


def test_contract_errors_in_gates_yaml_have_line_and_column(mistakes):
    lines = (mistakes.folder.parent.parent.parent / "gates.yaml").read_text().splitlines()
    for gate, offset, column in (("field_missing", 3, 13), ("limit_missing", 4, 5)):
        line = lines.index(f"  {gate}:") + 1 + offset
        message = next(c for c in mistakes.result["cases"] if c["gate"] == gate)["message"]
        assert message.startswith(f"gates.yaml:{line}:{column}: ")


def test_contract_errors_exit_with_4(mistakes):
    assert mistakes.code == 4
