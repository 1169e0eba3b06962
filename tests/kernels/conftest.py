"""A backend for kernel tests: the emulated sm_100a."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(scope="session")
def backend() -> Any:
    """One for the session, so that each configuration is compiled once. It must exist before anyone imports cutlass."""
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch="sm_100a")
