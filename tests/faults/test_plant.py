"""Edits change the statement that they name and nothing else, or say that there is none."""

from __future__ import annotations

import pytest

from tests.faults.plant import EVERY, Edit, NotPlanted, change, double, drop, insert, move, plant, statements

PTX = """
	bar.sync 	0;
	// begin inline asm
	{
	.reg .pred P1;
	LAB: mbarrier.try_wait.parity.shared.b64 P1, [%r1], 0;
	@!P1 bra LAB;
	}
	// end inline asm
	st.shared.b32 	[%r1], %r2;
	// begin inline asm
	bar.arrive 1, 64;
	// end inline asm
	bar.sync 	1, 64;
"""


def test_a_block_in_braces_is_one_statement_and_the_text_survives() -> None:
    pieces = statements(PTX)
    assert "\n".join(pieces) == PTX
    assert [p for p in pieces if "try_wait" in p] == [
        "\n".join(PTX.split("\n")[2:9]),
    ]
    assert "\tbar.arrive 1, 64;" in pieces


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (drop("bar.sync", 1), "\tbar.sync \t1, 64;\n", ""),
        (drop("try_wait"), "\n".join(PTX.split("\n")[2:9]) + "\n", ""),
        (double("st.shared"), "%r2;\n", "%r2;\n\tst.shared.b32 \t[%r1], %r2;\n"),
        (change("bar.sync", "64", "96", 1), "\tbar.sync \t1, 64", "\tbar.sync \t1, 96"),
        (insert("before", "st.shared", "X;"), "\tst.shared", "X;\n\tst.shared"),
        (insert("after", "st.shared", "X;"), "%r2;\n", "%r2;\nX;\n"),
    ],
)
def test_an_edit(edit: Edit, old: str, new: str) -> None:
    assert PTX.count(old) == 1
    assert plant(PTX, edit) == PTX.replace(old, new)


def test_a_move() -> None:
    moved = PTX.replace("\tbar.sync \t0;\n", "").replace("%r2;\n", "%r2;\n\tbar.sync \t0;\n")
    assert plant(PTX, move("bar.sync", 0, "after", "st.shared")) == moved


def test_every_match_and_edits_in_order() -> None:
    assert plant(PTX, drop("bar.sync", EVERY)).count("bar.sync") == 0
    assert plant(PTX, double("st.shared"), drop("st.shared", 1)) == PTX


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop("bar.sync", 2), "'bar.sync' matches 2 statements, number 2 is wanted"),
        (drop("membar"), "'membar' matches 0 statements, number 0 is wanted"),
        (change("st.shared", "%r7", "%r8"), "'%r7' is not in 'st.shared.b32"),
    ],
)
def test_an_edit_that_finds_nothing(edit: Edit, message: str) -> None:
    with pytest.raises(NotPlanted, match=message):
        plant(PTX, edit)
