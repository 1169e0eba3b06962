"""All cases."""

from __future__ import annotations

from functools import cache

from tests.emulator.hw import atomics, clusters, copies, faults, maps, programs, tensors
from tests.emulator.hw.case import Case

EQUAL: list[Case] = [*clusters.CASES, *copies.CASES, *maps.CASES, *tensors.CASES, *atomics.CASES, *programs.CASES]
"""Cases whose words are the same on both."""

REFUSED = [*faults.CASES, *tensors.REFUSED]
"""(case, the emulator's error): what the hardware refuses, or does without a word although it is illegal."""


@cache
def _names() -> dict[str, Case]:
    every = [*EQUAL, *maps.ODDITIES, *(case for case, _ in REFUSED)]
    names = {c.name: c for c in every}
    if len(names) != len(every):
        raise ValueError("two cases of one name")
    return names


def by_name(name: str) -> Case:
    """The case of that name."""
    return _names()[name]
