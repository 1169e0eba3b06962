"""The case object: fields, defaults, missing and unused ones."""

from __future__ import annotations

import pytest

from gate.case import Case, MissingField


def test_fields_by_attribute_item_and_default():
    case = Case("n256", {"heads": 2, "causal": True})
    assert (case.id, case.heads, case["heads"], case.get("causal", False), case.get("window", 7)) == (
        "n256",
        2,
        2,
        True,
        7,
    )
    assert "heads" in case and "window" not in case and len(case) == 2
    assert dict(case) == {"heads": 2, "causal": True}


@pytest.mark.parametrize("ask", [lambda c: c.heads, lambda c: c["heads"], lambda c: hasattr(c, "heads")])
def test_missing_field_names_case_field_and_the_line_that_asks(ask):
    with pytest.raises(MissingField, match=r"case 'n256' has no field 'heads' \(.*test_case\.py:\d+ asks for it\)"):
        ask(Case("n256", {"q": 1}))


def test_missing_field_is_no_error_that_a_stage_would_catch():
    assert not issubclass(MissingField, KeyError | AttributeError)


def test_never_asked_lists_what_nobody_looked_at():
    case = Case("a", {"m": 1, "n": 2, "k": 3})
    assert case.never_asked() == ["m", "n", "k"]
    _ = case.m, case.get("n")
    assert case.never_asked() == ["k"]
    _ = "k" in case
    assert case.never_asked() == []
