"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--hw` also runs what needs a GPU."""
    parser.addoption("--hw", action="store_true", help="run the tests that need a GPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `hw` unless they are asked for."""
    if not config.getoption("--hw"):
        for item in items:
            # Not `"hw" in item.keywords`: names of folders are keywords too.
            if item.get_closest_marker("hw"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU: pytest --hw"))


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data that lies beside a checkout; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside this checkout")
    return folder


@pytest.fixture(scope="session")
def data() -> Path:
    """Committed test data."""
    return ROOT / "tests" / "data"
