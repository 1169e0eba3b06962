"""A door with a host behind it."""

from __future__ import annotations

import ctypes
from pathlib import Path

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


@pytest.fixture
def dll(opened: Door) -> ctypes.CDLL:
    return ctypes.CDLL(str(opened.library))
