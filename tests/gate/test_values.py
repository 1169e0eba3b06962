"""values(outputs, case) of a stage: further outputs, judged like the others, and no part of what is counted."""

from __future__ import annotations

from tests.gate.conftest import Project, cases_yaml

VALUES = '''def values(outputs: dict[str, Tensor], case: Any) -> dict[str, Tensor]:
    """The mean of the rows, by operations that a count would see."""
    return {"mean": outputs["y"].double().mean(-1) * case.get("factor", 1.0)}


def oracle('''
LIMIT = "      mean: {rel_rms: 0.01}\n    launches: 1\n    syncs: 0\n"
MEAN = '    return {"y": y, "total": y.sum(-1), "mean": y.mean(-1)}'
CASES = ["{id: right, m: 96, n: 64}", "{id: other, m: 96, n: 64, factor: 2.0}"]


def test_what_a_stage_reads_from_its_outputs_is_judged_and_not_counted(project: Project) -> None:
    project.edit("stages/scale.py", "def oracle(", VALUES)
    with_mean(project)
    done = project.write(cases_yaml(CASES, more=LIMIT)).run()
    right, other = done.case("right"), done.case("other")
    assert right["status"] == "pass" and right["counts"]["launches"] == 1 and right["counts"]["syncs"] == 0
    assert right["outputs"]["mean"]["rel_rms"] < 0.01
    assert other["status"] == "wrong_values" and "mean.rel_rms 1.0e+00" in other["message"]


def test_a_mistake_in_it_is_the_stages_own(project: Project) -> None:
    project.edit("stages/scale.py", "def oracle(", VALUES.replace('outputs["y"]', 'outputs["what"]'))
    with_mean(project)
    case = project.write(cases_yaml(CASES[:1], more=LIMIT)).run().case("right")
    assert case["status"] == "contract_error" and "values() raised KeyError: 'what'" in case["message"]


def with_mean(project: Project) -> None:
    """The oracle and plain torch give the mean, too."""
    project.edit("stages/scale.py", '    return {"y": y, "total": y.sum(-1)}\n\n\ndef plain', MEAN + "\n\n\ndef plain")
    old = '"total": y.float().sum(-1)}'
    project.edit("stages/scale.py", old, old[:-1] + ', "mean": y.double().mean(-1)}')
