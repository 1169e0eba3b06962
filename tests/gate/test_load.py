"""gates.yaml: mistakes in its shape and its cross-references, with line and column, all at once."""

# ruff: noqa: E501 - a row of a table is one line

from __future__ import annotations

from pathlib import Path

import pytest

from gate.errors import BadFile, UsageError
from gate.load import load, parse

GOOD = """version: 1
defaults:
  seeds: [0, 1]
  repeat: 3
  timeout_s: 120
gates:
  qk_tmem:
    about: scores land in tensor memory
    arch: [sm100]
    cases:
      - {id: m128, m: 128, ratio: 2e-2, name: no}
    limits:
      s: {vs_torch: 2}
  fmha:
    about: online softmax over several tiles
    needs: [qk_tmem]
    seeds: [7]
    repeat: 5
    timeout_s: 2.5
    cases:
      - {id: n128, n: 128, launches: 0}
      - {id: n256, n: 256}
    limits:
      out: {cos: 0.99, diff: 1e-5, against: simulated}
    launches: "<= 2"
    falsified_by: {pinned: wrong_values, lost: [hang, timeout]}
  later:
    about: not there yet
    state: planned
"""


def problems(text: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        parse(text, Path("."))
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in GOOD, old
    return GOOD.replace(old, new, 1)


def test_good_file_gives_values_defaults_and_ladder():
    gates = parse(GOOD, Path("."))
    assert gates.order == ("qk_tmem", "fmha", "later")
    assert (gates.seeds("qk_tmem"), gates.repeat("qk_tmem"), gates.timeout_s("qk_tmem")) == ([0, 1], 3, 120)
    assert (gates.seeds("fmha"), gates.repeat("fmha"), gates.timeout_s("fmha")) == ([7], 5, 2.5)
    assert gates["qk_tmem"].cases[0].fields() == {"m": 128, "ratio": 0.02, "name": "no"}
    assert gates["fmha"].falsified_by == {"pinned": ["wrong_values"], "lost": ["hang", "timeout"]}
    assert gates["fmha"].cases[0].launches == 0 and gates["fmha"].cases[0].fields() == {"n": 128}
    assert gates["qk_tmem"].state == "gated" and gates["later"].state == "planned"
    assert gates.place(("gates", "fmha", "cases", 1)) == "gates.yaml:22:9"
    assert gates.place(("gates", "fmha", "limits"), key=True) == "gates.yaml:23:5"


def test_ladder_puts_needed_gates_first_whatever_the_order_of_the_file():
    text = GOOD.replace("needs: [qk_tmem]", "needs: []").replace("    arch: [sm100]\n", "    needs: [fmha]\n", 1)
    assert parse(text, Path(".")).order == ("fmha", "qk_tmem", "later")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("repeat: 3", "repeat: 0", "gates.yaml:4:11: defaults.repeat: must be at least 1, got 0"),
        ("repeat: 3", "repeat: three", "gates.yaml:4:11: defaults.repeat: must be a whole number, got 'three'"),
        ("repeat: 3", "repeat: true", "gates.yaml:4:11: defaults.repeat: must be a whole number, got True"),
        ("timeout_s: 120", "timeout_s: -1", "gates.yaml:5:14: defaults.timeout_s: must be greater than 0, got -1"),
        ("seeds: [0, 1]", "seeds: []", "gates.yaml:3:10: defaults.seeds: must not be empty"),
        ("seeds: [0, 1]", "seeds: 0", "gates.yaml:3:10: defaults.seeds: must be a list, got 0"),
        ("repeat: 3", "repeats: 3", "gates.yaml:4:3: defaults.repeats: unknown key 'repeats' (did you mean 'repeat'?)"),
        ("version: 1", "version: 2", "gates.yaml:1:10: version: 2 is not allowed; allowed: 1"),
        ("version: 1\n", "", "gates.yaml:1:1: version: missing key 'version'"),
        ("[sm100]", "[sm80]", "gates.yaml:9:12: gates.qk_tmem.arch.0: 'sm80' is not allowed; allowed: sm90, sm100"),
        ("about: scores land in tensor memory", "about: short", "gates.yaml:8:12: gates.qk_tmem.about: must be at least 8 characters long, has 5"),
        ("{vs_torch: 2}", "{vs_torch: -2}", "gates.yaml:13:21: gates.qk_tmem.limits.s.vs_torch: must be greater than 0, got -2"),
        ("{vs_torch: 2}", "{vs_torsh: 2}", "gates.yaml:13:11: gates.qk_tmem.limits.s.vs_torsh: unknown key 'vs_torsh' (did you mean 'vs_torch'?)"),
        ("{vs_torch: 2}", "{exact: false}", "gates.yaml:13:18: gates.qk_tmem.limits.s.exact: False is not allowed; allowed: True"),
        ("{vs_torch: 2}", "2", "gates.yaml:13:10: gates.qk_tmem.limits.s: must be a mapping, got 2"),
        ("cos: 0.99", "cos: 1.5", "gates.yaml:24:18: gates.fmha.limits.out.cos: must be at most 1, got 1.5"),
        ("limits:\n      s:", "limts:\n      s:", "gates.yaml:12:5: gates.qk_tmem.limts: unknown key 'limts' (did you mean 'limits'?)"),
        ("    about: not there yet\n", "", "gates.yaml:27:3: gates.later.about: missing key 'about'"),
        ('"<= 2"', '"< 2"', "gates.yaml:25:15: gates.fmha.launches: must be a count (0, 1, …) or '<= n', got '< 2'"),
        ("pinned: wrong_values", "pinned: wrong_value", "gates.yaml:26:28: gates.fmha.falsified_by.pinned: 'wrong_value' is no status of a rejected mutant (did you mean 'wrong_values'?)"),
        ("id: m128", "id: M-128", "gates.yaml:11:14: gates.qk_tmem.cases.0.id: 'M-128' is no name"),
        ("id: m128, ", "", "gates.yaml:11:9: gates.qk_tmem.cases.0.id: missing key 'id'"),
        ("m: 128,", "m: {a: 1},", "gates.yaml:11:23: gates.qk_tmem.cases.0.m: must be a number, a text, true, false or a list of those"),
        ("  later:", "  Later:", "gates.yaml:27:3: gates.Later: 'Later' is no name"),
        ("  later:", "  fmha:", "gates.yaml:27:3: gates.fmha: key 'fmha' is used twice (first in line 14)"),
        ("      - {id: n256, n: 256}", "      - {id: n256, n: 256, n: 2}", "gates.yaml:22:28: gates.fmha.cases.1.n: key 'n' is used twice (first in line 22)"),
    ],
)  # fmt: skip
def test_mistake_of_shape(old, new, line):
    assert any(problem.startswith(line) for problem in problems(changed(old, new))), problems(changed(old, new))


def test_all_mistakes_of_shape_at_once_in_order_of_lines():
    text = (
        changed("repeat: 3", "repeat: 0").replace("limits:\n      s:", "limts:\n      s:").replace("[sm100]", "[sm80]")
    )
    found = problems(text)
    assert [line.split(": ")[0] for line in found] == [
        "gates.yaml:4:11", "gates.yaml:7:3", "gates.yaml:9:12", "gates.yaml:12:5",
    ]  # fmt: skip
    assert "gates.qk_tmem.limits: missing key 'limits'" in found[1]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[qk_tmem]", "[qk_tmen]", "gates.yaml:16:13: gates.fmha.needs: no gate 'qk_tmen' (did you mean 'qk_tmem'?)"),
        ("[qk_tmem]", "[fmha]", "gates.yaml:16:13: gates.fmha.needs: a gate cannot need itself"),
        ("[qk_tmem]", "[later]", "gates.yaml:16:13: gates.fmha.needs: 'later' is only planned, so a gated gate cannot need it"),
        ("[qk_tmem]", "[qk_tmem, qk_tmem]", "gates.yaml:16:22: gates.fmha.needs: 'qk_tmem' is listed twice"),
        ("id: n256", "id: n128", "gates.yaml:22:14: gates.fmha.cases.1.id: case id 'n128' is used twice"),
        ("{vs_torch: 2}", "{against: ideal}", "gates.yaml:13:10: gates.qk_tmem.limits.s: has no limit; give one of diff, vs_torch, cos"),
        ("    arch: [sm100]\n", "    needs: [fmha]\n", "gates.yaml:9:5: gates.qk_tmem.needs: goes in a circle: qk_tmem → fmha → qk_tmem"),
        ('    launches: "<= 2"', "    roofline: {at_most: 2, bytes: n * k, operations: n}", "gates.yaml:25:35: gates.fmha.roofline.bytes: case 'n128': 'n * k' needs the field 'k' as a number"),
    ],
)  # fmt: skip
def test_mistake_of_a_reference(old, new, line):
    found = problems(changed(old, new))
    assert any(problem.startswith(line) for problem in found), found


def test_a_planned_gate_with_cases_needs_limits_and_the_other_way_round():
    planned = "    state: planned\n"
    for given, missing in (("cases: [{id: a}]", "limits"), ("limits: {y: {cos: 0.9}}", "cases")):
        found = problems(changed(planned, f"{planned}    {given}\n"))
        assert found == [f"gates.yaml:27:3: gates.later.{missing}: missing key '{missing}'"]
    both = changed(planned, f"{planned}    cases: [{{id: a}}]\n    limits: {{y: {{cos: 0.9}}}}\n")
    assert parse(both, Path("."))["later"].cases is not None


def test_planned_gates_need_neither_cases_nor_limits_but_building_ones_do():
    found = problems(changed("state: planned", "state: building"))
    assert found == [
        "gates.yaml:27:3: gates.later.cases: missing key 'cases'",
        "gates.yaml:27:3: gates.later.limits: missing key 'limits'",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "gates.yaml:1:1: the file must be a mapping"),
        ("- a\n- b\n", "gates.yaml:1:1: the file must be a mapping"),
        ("version: 1\ngates: {\n", "gates.yaml:"),
        ("version: 1\n\tgates: 2\n", "gates.yaml:2:1: not YAML"),
        ("version: 1\ngates: {}\n", "gates.yaml:2:8: gates: must not be empty"),
        ("version: 1\ngates: 3\n", "gates.yaml:2:8: gates: must be a mapping, got 3"),
        ("version: 1\ngates: {a: 3}\n", "gates.yaml:2:12: gates.a: must be a mapping, got 3"),
    ],
)
def test_what_is_no_gates_file(text, line):
    assert problems(text)[0].startswith(line)


def test_missing_file_and_bytes_that_are_no_text(tmp_path):
    with pytest.raises(UsageError, match=r"there is no gates.yaml in "):
        load(tmp_path)
    (tmp_path / "gates.yaml").write_bytes(b"version: \xff\n")
    with pytest.raises(BadFile, match="gates.yaml:1:1: not UTF-8 text"):
        load(tmp_path)


def test_yaml_1_2_no_is_a_text_and_an_exponent_a_number():
    case = parse(changed("name: no", "name: on, other: 1e3, when: 12:30"), Path("."))["qk_tmem"].cases[0]
    assert case.fields() == {"m": 128, "ratio": 0.02, "name": "on", "other": 1000.0, "when": "12:30"}
