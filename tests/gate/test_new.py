"""--new: the skeleton passes every check at once, and nothing is written over."""

from __future__ import annotations

import pytest

from gate.load import load


def test_new_gate_is_valid_at_once_and_expected_to_fail(project):
    before = (project.root / "gates.yaml").read_text()
    done = project.run("--new", "fresh")
    assert done.code == 0
    assert done.out.splitlines() == [
        "wrote stages/fresh.py",
        "added gates.fresh in gates.yaml (state: building)",
        "next: python run_gate.py fresh --oracle-only",
    ]
    assert (project.root / "gates.yaml").read_text().startswith(before.rstrip("\n"))
    assert load(project.root)["fresh"].state == "building"
    assert project.run("--check").code == 0
    oracle = project.run("fresh", "--oracle-only")
    assert oracle.code == 0 and oracle.gate("fresh")["status"] == "pass"
    kernel = project.run("fresh", "--arch", "sm100")
    assert kernel.code == 0 and kernel.gate("fresh")["status"] == "xfail"
    assert "NotImplementedError: call a host function of kernels/ here" in kernel.result["cases"][0]["message"]


def test_planned_gate_is_promoted_in_place_and_keeps_its_claim(project):
    done = project.run("--new", "far")
    assert done.code == 0 and "changed gates.far in gates.yaml" in done.out
    gate = load(project.root)["far"]
    assert (gate.state, gate.about, gate.group) == ("building", "not built yet, but on the map", "sample")
    assert (project.root / "stages" / "far.py").read_text().startswith('"""Not built yet, but on the map.\n')
    assert load(project.root)["scale"].cases[1].fields() == {"m": 96, "n": 64}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scale", "stages/scale.py exists"),
        ("Fresh-One", "--new 'Fresh-One' is no name"),
        ("9th", "--new '9th' is no name"),
    ],
)
def test_refusal(project, name, text):
    before = (project.root / "gates.yaml").read_text()
    done = project.run("--new", name)
    assert done.code == 4 and text in done.err
    assert (project.root / "gates.yaml").read_text() == before


def test_planned_gate_in_one_line_is_left_to_its_author(project):
    project.edit("gates.yaml", "  far:\n", "  near: {about: a claim in one line, state: planned}\n  far:\n")
    done = project.run("--new", "near")
    assert done.code == 4 and "write gates.near over several lines" in done.err
    assert not (project.root / "stages" / "near.py").exists()


def test_gate_that_is_built_is_not_written_over(project):
    (project.root / "stages" / "scale.py").unlink()
    done = project.run("--new", "scale")
    assert done.code == 4 and "the gate exists and is gated" in done.err
