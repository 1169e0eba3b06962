"""The door: checkers by name, what they have found, errors that they are told of."""

from __future__ import annotations

import pytest

from emulator.errors import Deadlock, MemoryFault
from emulator.watch import TOOLS, UnknownTool, checkers, failed, findings, summary


def test_all_five_by_default_and_each_once_by_name():
    assert [checker.tool for checker in checkers()] == list(TOOLS)
    assert [checker.tool for checker in checkers(["racecheck", "memcheck", "racecheck"])] == ["racecheck", "memcheck"]
    assert checkers([]) == []
    first, second = checkers(["memcheck"]) + checkers(["memcheck"])
    assert first is not second


def test_an_unknown_tool_is_refused_with_the_list():
    with pytest.raises(UnknownTool, match="no checker 'racechek'; there are: memcheck, initcheck, racecheck"):
        checkers(["memcheck", "racechek"])


def test_fresh_checkers_have_found_nothing():
    assert findings(checkers()) == [] and summary([]) == ""


def test_an_error_is_told_to_those_that_understand_it():
    some = checkers(["initcheck", "memcheck"])
    failed(some, None)
    failed(some, Deadlock("kernel", 1, [], []))
    assert findings(some) == []
    failed(some, MemoryFault("read of 4 bytes at 0x10 is misaligned: the address must be a multiple of 4"))
    failed(some, MemoryFault("read of 4 bytes at 0x10 is misaligned: the address must be a multiple of 4"))
    (finding,) = findings(some)
    assert (finding.tool, finding.kind, finding.count) == ("memcheck", "misaligned", 2)
    assert summary([finding]).startswith("memcheck: misaligned: read of 4 bytes at 0x10")
