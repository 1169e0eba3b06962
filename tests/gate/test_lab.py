"""The notebook's workbench: what it refuses, and what it says; the notebooks themselves run all of it."""

from __future__ import annotations

import pytest

from gate.errors import UsageError
from gate.lab import Lab, _Chosen


def test_says_what_it_is() -> None:
    assert repr(Lab("fmha_mult")) == "fmha_multitile[n128_one_tile]: q=128, kv=128, d=64; emulated sm_100a"
    lab = Lab("fmha_multitile", "n256", mutant="kv_tile_pinned")
    assert repr(lab).endswith("q=128, kv=256, d=64; emulated sm_100a, mutant kv_tile_pinned")


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (("fmha_multitile", "n257"), {}, "no case 'n257' with seed 0; cases: n128_one_tile, n256"),
        (("fmha_multitile", "n256"), {"seed": 7}, "no case 'n256' with seed 7"),
        (("fmha_multitile",), {"mutant": "typo"}, "no mutant 'typo'; mutants: kv_tile_pinned"),
        (("fmha_nothing",), {}, "fmha_nothing"),
    ],
)
def test_refusals(arguments: tuple[str, ...], settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Lab(*arguments, **settings)


def test_only_the_tensors_named(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = _Chosen(["tK"])
    for line in ("tQ (1)", "    0 one", "tK (2)", "    0 two", "PINNED tV: mode 1", "tV (3)"):
        chosen(line)
    assert capsys.readouterr().out.splitlines() == ["tK (2)", "    0 two", "PINNED tV: mode 1"]


def test_names_of_a_stage_that_has_some_and_of_one_that_has_none() -> None:
    assert "O" in Lab("fmha_multitile").stage.names()["fields"]
    assert Lab("rope").stage.names() == {}


def test_clean_run_and_findings() -> None:
    one = Lab("fmha_qk", "n128").run()
    assert one.difference() < 1e-12 and "all 16384 elements right" in one.errors().text()
    assert Lab("fmha_qk", "n128").sanitize("memcheck", "initcheck") == []
    hang = Lab("fmha_qk", "n128", mutant="missing_commit")
    assert [(f.tool, f.kind) for f in hang.sanitize("synccheck")] == [("synccheck", "deadlock")]
