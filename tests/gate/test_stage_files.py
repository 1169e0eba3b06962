"""The contract between gates.yaml, stages/ and mutants/: on a sample tree with mistakes, and on this tree."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

import pytest

from gate import stage_files
from gate.load import load, parse

STAGE = '''"""Claim."""


def inputs(case, rng): ...
def run(x, case, backend, mutant=None): ...
def oracle(x, case, kind): ...
def plain(x, case): ...
def wrong(x, case): ...
'''
GATES = """version: 1
gates:
  fmha_tile:
    about: a claim here
    cases: [{id: a}]
    limits: {y: {cos: 0.9}}
    falsified_by: {pinned: hang}
  later:
    about: a claim here
    state: planned
"""


@pytest.fixture
def tree(tmp_path):
    for name, text in {
        "stages/__init__.py": "",
        "stages/fmha_tile.py": STAGE,
        "mutants/__init__.py": "",
        "mutants/fmha.py": 'MUTANTS = {"pinned": 1}\n',
        "gates.yaml": GATES,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(tree, names=None):
    return [str(p) for p in stage_files.problems(load(tree), names)]


def test_good_tree_has_no_problems(tree):
    assert found(tree) == []


def test_gate_without_stage_and_stage_without_gate(tree):
    (tree / "stages" / "fmha_tile.py").rename(tree / "stages" / "other.py")
    assert found(tree) == [
        "gates.yaml:3:3: gates.fmha_tile: there is no stages/fmha_tile.py (a gate without one must be planned)",
        "stages/other.py:1:1: no gate of gates.yaml judges this stage",
    ]
    assert len(found(tree, ["fmha_tile"])) == 1


def test_planned_gate_whose_stage_exists_already(tree):
    (tree / "stages" / "later.py").write_text(STAGE)
    assert found(tree) == [
        "gates.yaml:8:3: gates.later: is planned, but stages/later.py exists: give it cases, or set state: building"
    ]


def test_planned_gate_with_cases_needs_a_stage_that_may_lack_a_kernel(tree):
    cases = "    state: planned\n    cases: [{id: a}]\n    limits: {y: {cos: 0.9}}\n"
    (tree / "gates.yaml").write_text(GATES.replace("    state: planned\n", cases))
    assert found(tree) == [
        "gates.yaml:8:3: gates.later: there is no stages/later.py (a gate without one must be planned)"
    ]
    (tree / "stages" / "later.py").write_text(STAGE.replace("def run(x, case, backend, mutant=None): ...\n", ""))
    assert found(tree) == []
    (tree / "stages" / "later.py").write_text(STAGE.replace("def oracle(x, case, kind): ...\n", ""))
    assert [line.split(";")[0] for line in found(tree)] == ["stages/later.py:1:1: has no function 'oracle'"]
    # whatever it has must have the contract's arguments
    (tree / "stages" / "later.py").write_text(STAGE.replace("def run(x, case, backend", "def run(x, case, device"))
    assert "run(x, case, device, mutant) has other arguments" in found(tree)[0]


@pytest.mark.parametrize("name", ["inputs", "run", "oracle", "plain", "wrong"])
def test_missing_function(tree, name):
    text = "\n".join(line for line in STAGE.splitlines() if f"def {name}(" not in line)
    (tree / "stages" / "fmha_tile.py").write_text(text)
    (line,) = found(tree)
    assert line.startswith(f"stages/fmha_tile.py:1:1: has no function '{name}'; wanted: def {name}(")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("run(x, case, backend, mutant=None)", "run(x, case, backend)", "stages/fmha_tile.py:5:1: run(x, case, backend) has other arguments"),
        ("def oracle(x, case, kind): ...", "def (", "stages/fmha_tile.py:6:5: is not Python"),
        ('"""Claim."""', "", "stages/fmha_tile.py:1:1: has no docstring"),
    ],
)  # fmt: skip
def test_broken_stage(tree, old, new, line):
    (tree / "stages" / "fmha_tile.py").write_text(STAGE.replace(old, new))
    assert found(tree)[0].startswith(line)


def test_mutants_that_are_not_there(tree):
    (tree / "mutants" / "fmha.py").write_text('MUTANTS: dict = {"other": 1, "more": 2}\n')
    assert found(tree) == [
        "gates.yaml:7:20: gates.fmha_tile.falsified_by.pinned: no mutant 'pinned' in mutants/fmha.py; it has other, more"
    ]
    (tree / "mutants" / "fmha.py").write_text("MUTANTS = {c.__name__: c for c in ()}\n")
    assert found(tree) == []  # only an import can tell
    (tree / "mutants" / "fmha.py").unlink()
    assert "no file of mutants/ is named like stage 'fmha_tile'" in found(tree)[0]


def test_longest_prefix_names_the_mutants(tree):
    assert stage_files.mutants_module(tree, "fmha_tile") == "fmha"
    (tree / "mutants" / "fmha_tile.py").write_text("")
    assert stage_files.mutants_module(tree, "fmha_tile_more") == "fmha_tile"
    assert stage_files.mutants_module(tree, "fmhatile") is None


def test_two_gates_may_share_a_stage(tree):
    shared = (
        GATES
        + "  again:\n    about: a claim here\n    stage: fmha_tile\n    cases: [{id: a}]\n    limits: {y: {cos: 0.9}}\n"
    )
    assert stage_files.problems(parse(shared, tree)) == []


PIPELINE = """
fmha_qk fmha_identity fmha_softmax fmha_multitile fmha_decode fmha_fp8 fmha_quantize_epilogue fmha_custom_op
indexer_logits indexer_topk compressor_csa compressor_hca compressor_idle
router moe_nvfp4 shared_expert
quantize_nvfp4 quantize_fp8 rmsnorm_quantize mhc_pre_rmsnorm_quantize mhc_post swiglu_quantize rope qk_norm_rope rope_epilogue
nvfp4_linear nvfp4_linear_w4a8 multi_linear grouped_linear lm_head
nvfp4_linear_w4a4 multi_linear_w4a4 grouped_linear_w4a4
nvfp4_linear_quantize nvfp4_linear_swiglu nvfp4_linear_swiglu_bf16 nvfp4_linear_rope
cache_append cache_memory cache_rewind
embedding hc_head sampler prefill_tiny decode_tiny mtp_tiny checkpoint_tiny decode_flash expert_parallel
""".split()


def test_this_tree_keeps_the_contract(root):
    assert [str(p) for p in stage_files.problems(load(root))] == []


def test_gates_yaml_of_this_tree_lists_the_whole_pipeline(root):
    assert sorted(load(root).order) == sorted(PIPELINE)
