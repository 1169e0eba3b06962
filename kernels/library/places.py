"""Where an operator runs: on the GPU that has its tensors; for tensors on the host, on the backend that is in use."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

import backends

_in_use: ContextVar[Any] = ContextVar("backend of kernels.library", default=None)


@contextmanager
def use(backend: Any) -> Iterator[Any]:
    """Operators called inside run on `backend` where it has their tensors; gives the backend.

    On a CPU this says which architecture is emulated: ``use(backends.get("emulated", arch="sm_90a"))``. May be nested:
    what was in use before is so again afterwards. Other threads do not see it.
    """
    token = _in_use.set(backend)
    try:
        yield backend
    finally:
        _in_use.reset(token)


def backend_for(op: str, x: torch.Tensor) -> Any:
    """The backend for an operator whose first tensor is x.

    Raises ValueError naming the device if there is none: a host tensor without ``use``, a GPU of another architecture.
    """
    chosen = _in_use.get()
    if chosen is not None and chosen.device == x.device:
        return chosen
    if x.device.type == "cuda":
        return _of_gpu(x.device.index)
    also = "" if chosen is None else f", or {chosen.device}, of the backend in use"
    raise ValueError(
        f"{op}: the first tensor is on {x.device}; allowed: a GPU's{also} (kernels.library.use sets a backend)"
    )


def own(x: torch.Tensor) -> torch.Tensor:
    """x as an operator may give it: at the beginning of its storage, where torch expects it. No copy.

    The emulated backend aligns an output inside of a larger piece of memory; on a GPU this is x itself.
    """
    return torch.from_dlpack(x) if x.storage_offset() else x


@functools.cache
def _of_gpu(index: int) -> Any:
    """One for each GPU, which keeps what it has compiled."""
    from backends.cuda import gpu_arch

    arch = gpu_arch(index)
    if arch not in backends.ARCHES:
        raise ValueError(f"kernels.library: cuda:{index} is {arch}; allowed: {', '.join(backends.ARCHES)}")
    return backends.get("cuda", arch=arch, index=index)
