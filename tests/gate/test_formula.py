"""Arithmetic over case fields."""

from __future__ import annotations

import pytest

from gate.formula import evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * m * n", 48.0),
        ("m + n - 1", 9.0),
        ("-m", -4.0),
        ("m / 8", 0.5),
        ("n // m", 1.0),
        ("n % m", 2.0),
        ("max(m, n, 3) + min(m, 1)", 7.0),
        ("(m + n) * 2.5", 25.0),
        ("7", 7.0),
    ],
)
def test_value(text, value):
    assert evaluate(text, {"m": 4, "n": 6}) == value


@pytest.mark.parametrize(("n", "value"), [([3, 4], 14.0), (5, 10.0), ([], 0.0), ([1.5], 3.0)])
def test_sum_of_a_field_that_may_be_a_list(n, value):
    assert evaluate("sum(n) * m", {"m": 2, "n": n}) == value


@pytest.mark.parametrize("n", [None, "3", [1, "2"], {}])
def test_sum_of_what_is_no_number(n):
    with pytest.raises(ValueError, match="needs the field 'n' as numbers"):
        evaluate("sum(n)", {"n": n})


@pytest.mark.parametrize(
    "text",
    [
        "sum(3)",
        "sum(m + n)",
        "sum(m, n)",
        "sum()",
        "sum(n, start=3)",
        "m **",
        "m ** 99",
        "__import__('os')",
        "m.real",
        "[m]",
        "'a'",
        "m if n else k",
        "abs(m)",
        "True",
        "m and n",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="is not arithmetic"):
        evaluate(text, {"m": 4, "n": 6})


@pytest.mark.parametrize("fields", [{}, {"m": "4"}, {"m": None}])
def test_missing_or_textual_field(fields):
    with pytest.raises(ValueError, match="needs the field 'm' as a number"):
        evaluate("2 * m", fields)
