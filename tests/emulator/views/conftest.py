"""The attention kernel, recorded."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(scope="session")
def backend() -> Any:
    """One for the session, so that each configuration is compiled once."""
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch="sm_100a")


@pytest.fixture(scope="session")
def attend(backend: Any) -> Any:
    """attend(mutant or None, keys): (recorder, output or exception, expected output); the same call runs once."""
    import torch

    from emulator.errors import EmulatorError
    from emulator.views import Recorder
    from kernels.fmha import fmha
    from kernels.fmha.config import FmhaConfig
    from kernels.fmha.names import names
    from mutants.fmha import MUTANTS

    @lru_cache
    def run(mutant: str | None, keys: int) -> tuple[Any, Any, Any]:
        rng = torch.Generator().manual_seed(0)
        q = torch.randn((1, 128, 1, 64), generator=rng).half()
        k, v = (torch.randn((1, keys, 1, 64), generator=rng).half() for _ in range(2))
        recorder = Recorder(**names(FmhaConfig("f16", 64)))
        backend.listeners = (recorder,)
        try:
            out: Any = fmha(q, k, v, backend=backend, kernel=MUTANTS.get(mutant or "")).out.transpose(1, 2)
        except EmulatorError as error:
            out = error
        finally:
            backend.listeners = ()
        q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))
        return recorder, out, torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return run
