"""The language of -k."""

from __future__ import annotations

import pytest

from gate.errors import UsageError
from gate.expression import compile_expression

ID = "fmha_multitile[n256-s0-sm100]"


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("n256", True),
        ("N256", True),
        ("n25", True),
        ("n256-s0", True),
        ("n512", False),
        ("n256 and sm100", True),
        ("n256 and not sm100", False),
        ("n512 or n256", True),
        ("not n512", True),
        ("not not n256", True),
        ("n512 or n256 and sm90", False),
        ("(n512 or n256) and sm100", True),
        ("not (n512 or n256)", False),
        ("( ( n256 ) )", True),
        ("notable", False),
        ("android or n256", True),
    ],
)
def test_expression(text, matches):
    assert compile_expression(text)(ID) == matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: a word is missing here"),
        ("n256 and", "column 9: a word is missing here"),
        ("and n256", "column 1: did not expect 'and'"),
        ("n256 n512", "column 6: did not expect 'n512'"),
        ("(n256", "column 6: ')' is missing"),
        ("n256)", "column 5: did not expect ')'"),
        ("()", "column 2: did not expect ')'"),
        ("not", "column 4: a word is missing here"),
    ],
)
def test_expression_that_cannot_be_read(text, message):
    with pytest.raises(UsageError, match="use words with and, or, not") as caught:
        compile_expression(text)
    assert message in str(caught.value)
