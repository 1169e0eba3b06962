"""docs/emulator.md is current, and its evidence is what the captured words and real kernels support."""

from __future__ import annotations

from pathlib import Path

import pytest

import emulator
from emulator import document
from emulator.isa import forms
from emulator.isa.evidence import B200, DOCUMENTATION, H200, KERNELS, LAYOUTS, LEVELS, evidence_of
from tests.emulator.hw import cases
from tests.emulator.isa.captured import groups, member

PROBES = ("mma", "mma2", "map", "warp", "tma", "mbar")


def test_the_file_is_current(root: Path) -> None:
    assert (root / "docs" / "emulator.md").read_text(encoding="utf-8") == document.document()
    assert document.main(["--check"]) == 0


def test_a_stale_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "TARGET", tmp_path / "emulator.md")
    assert document.main(["--check"]) == 1
    assert document.main([]) == 0 and document.main(["--check"]) == 0
    assert document.main(["--frob"]) == 2


def captured_opcodes() -> set[str]:
    """Every opcode that ran on the H200."""
    found = {text.split()[0] for entry in groups() for text in entry["ops"]}
    for name in PROBES:
        module = emulator.parse(bytes(member(f"ptx/{name}")).decode())
        found |= {i.opcode for f in module.functions.values() for i in f.instructions}
    for case in cases.EQUAL:
        found |= {i.opcode for f in emulator.parse(case.text).functions.values() for i in f.instructions}
    return found


def test_every_claim_is_supported(data: Path) -> None:
    """H200: an opcode of the form was captured. Kernels: it occurs in one, and was not captured. Documentation:
    neither. B200: it occurs in kernels; its words are in tests/emulator/units."""
    captured, used = captured_opcodes(), set((data / "opcodes.txt").read_text().split())
    wrong = []
    for form in forms():
        ran = any(form.regex.fullmatch(o) for o in captured)
        occurs = any(form.regex.fullmatch(o) for o in used)
        best = H200 if ran else KERNELS if occurs else DOCUMENTATION
        claimed = evidence_of(form.pattern).level
        if claimed != best and not (claimed == B200 and best == KERNELS):
            wrong.append((form.pattern, claimed, best))
    assert wrong == []


def test_levels_are_known() -> None:
    assert {level for _, level, _ in LAYOUTS} <= set(LEVELS)
    assert {evidence_of(f.pattern).level for f in forms()} == set(LEVELS)


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("add[.rnd:rn|rz|rm|rp][.ftz].type:f32|f32x2", "add[.{rn, rz, rm, rp}][.ftz].{f32, f32x2}"),
        ("mma.sync.aligned.shape:m16n8k8.row.col.d:f32.a:f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16"),
        ("x.n:a|b|c|d|e|f|g[.space:shared|shared::cta].b8", "x.{a, b, …, g}[.{shared, shared::cta}].b8"),
        ("tcgen05.mma.kind:kind::f16|kind::i8", "tcgen05.mma.{kind::f16, kind::i8}"),
    ],
)
def test_readable_forms(pattern: str, want: str) -> None:
    assert document.readable(pattern) == want
