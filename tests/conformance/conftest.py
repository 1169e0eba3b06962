"""Worker processes for the packages under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.worker import Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[str, str], Worker]]:
    """The worker of a test module and an architecture, started at its first use."""
    started: dict[tuple[str, str], Worker] = {}

    def of(module: str, arch: str) -> Worker:
        if (module, arch) not in started:
            started[module, arch] = Worker(module, arch)
        return started[module, arch]

    yield of
    for each in started.values():
        each.close()
