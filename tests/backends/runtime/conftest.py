"""A door with a host behind it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from backends.runtime.build import build
from backends.runtime.door import Door, door
from tests.backends.runtime.host_code import Host


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture(scope="session")
def opened(library_root: Path) -> Door:
    return door(build(library_root / "runtime"))


class Exports:
    """The stand-in's functions under the names of those that they stand in for."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def __getattr__(self, name: str) -> Any:
        return self._library["emulated_" + name]


@pytest.fixture
def dll(opened: Door) -> Exports:
    return Exports(opened.library)
