"""Fixtures for the backends: a cache of its own for each test, and an engine that records launches instead of running
them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.cache import Cache
from backends.emulation import EmulatedBackend


class Recorder:
    """Takes the place of `emulator.run`: keeps what a launch was called with; `answer` may raise."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self.fail: BaseException | None = None

    def __call__(self, module, entry, grid, block, parameters, memory, **settings) -> dict[str, Any]:
        launch = dict(
            module=module, entry=entry, grid=grid, block=block, parameters=parameters, memory=memory, **settings
        )
        self.launches.append(launch)
        if self.fail:
            raise self.fail
        return launch


@pytest.fixture(scope="session")
def library_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One root for the session, so that the stand-in library is compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(library_root: Path, tmp_path: Path) -> Iterator[Cache]:
    """An empty cache; the stand-in library is shared."""
    (tmp_path / "cache").mkdir()
    (library_root / "runtime").mkdir(exist_ok=True)
    os.symlink(library_root / "runtime", tmp_path / "cache" / "runtime")
    yield Cache(tmp_path / "cache")


@pytest.fixture
def recorder() -> Recorder:
    """The engine that records."""
    return Recorder()


@pytest.fixture(params=backends.ARCHES)
def backend(request: pytest.FixtureRequest, cache: Cache, recorder: Recorder) -> EmulatedBackend:
    """The emulated backend of each architecture, with the recording engine."""
    made = backends.get("emulated", request.param, cache=cache, run=recorder)
    assert isinstance(made, EmulatedBackend)
    return made


@pytest.fixture
def blackwell(cache: Cache, recorder: Recorder) -> EmulatedBackend:
    """The emulated backend for sm_100a with the recording engine."""
    made = backends.get("emulated", "sm_100a", cache=cache, run=recorder)
    assert isinstance(made, EmulatedBackend)
    return made
