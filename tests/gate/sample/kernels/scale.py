"""y = 1.7 x, with every fault that a judge has to see through, chosen by name."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import torch

from emulator.errors import Deadlock, MemoryFault, UnknownInstruction, Unsupported, Waiting, Watchdog
from kernels.checked import BODIES, touch

KEPT: dict[str, torch.Tensor] = {}
RUNS = {"count": 0}


def scale(x: torch.Tensor, fault: str, backend: Any) -> dict[str, torch.Tensor]:
    """y: (m, n) in the dtype of x; total: (m,) f32, the row sums of y."""
    RUNS["count"] += 1
    before = BEFORE.get(fault)
    if before is not None:
        before(x, backend)
    name = "does_not_compile" if fault == "does_not_compile" else "scale"
    if fault == "compiles_always":
        name = f"scale_{RUNS['count']}"
    compiled = backend.compile(_scale, name=name)
    y = backend.empty(tuple(x.shape), x.dtype)
    if fault != "unwritten":
        backend.launch(compiled, x, y)
    change = AFTER.get(fault)
    y = change(y, x, backend) if change else y
    total = y.float().sum(-1)
    if fault == "total_missing":
        return {"y": y}
    return {"y": y, "total": total, "more": total} if fault == "output_extra" else {"y": y, "total": total}


def _scale(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(1.7 * x.float())


def _tile_zero(y: torch.Tensor, x: torch.Tensor, backend: Any) -> torch.Tensor:
    rows = torch.arange(y.shape[0]) % 32
    y.copy_(y[rows])
    return y


def _nan_block(y: torch.Tensor, x: torch.Tensor, backend: Any) -> torch.Tensor:
    y[:, 16:32] = float("nan")
    return y


def _kept(y: torch.Tensor, x: torch.Tensor, backend: Any) -> torch.Tensor:
    return KEPT.setdefault("y", y)


def _noisy(y: torch.Tensor, x: torch.Tensor, backend: Any) -> torch.Tensor:
    y[3, 5] += 0.0625 * RUNS["count"]
    return y


def _late(y: torch.Tensor, x: torch.Tensor, backend: Any) -> torch.Tensor:
    if backend.policy == "latest":
        y[0, 0] += 1
    return y


def _changes_input(x: torch.Tensor, backend: Any) -> None:
    x[1, 1] = 0


def _two_launches(x: torch.Tensor, backend: Any) -> None:
    backend.launch(backend.compile(lambda t: None, name="fill"), x)


def _sync(x: torch.Tensor, backend: Any) -> None:
    backend.counters.sync_calls.append("item")


def _hang(x: torch.Tensor, backend: Any) -> None:
    waits = [Waiting(0, 4, 212, "mbarrier.try_wait", "kv_full[0] phase 1, 0 of 1 arrived", ("sm100.py", 148))]
    raise Deadlock("scale", 520_000, waits, ["mma needs kv_full[0], which load has not filled"])


def _unknown(x: torch.Tensor, backend: Any) -> None:
    raise UnknownInstruction("scale", [Unsupported(412, "tcgen05.cp.cta_group::1.128x256b", "no such shape")])


def _watchdog(x: torch.Tensor, backend: Any) -> None:
    raise Watchdog("scale", 2_000_000, ["line 12: 1,000,000"])


def _fault(x: torch.Tensor, backend: Any) -> None:
    raise MemoryFault("read of 16 bytes at 0x10, 16 bytes past the end of x")


def _raises(x: torch.Tensor, backend: Any) -> None:
    raise ValueError("scale: n=3 is not supported; allowed: multiples of 8")


def _exits(x: torch.Tensor, backend: Any) -> None:
    print("about to leave", flush=True)
    os._exit(7)


def _segfault(x: torch.Tensor, backend: Any) -> None:
    ctypes.string_at(0)


def _sleeps(x: torch.Tensor, backend: Any) -> None:
    time.sleep(60)


BEFORE = {
    "changes_input": _changes_input,
    "two_launches": _two_launches,
    "sync": _sync,
    "hang": _hang,
    "unknown": _unknown,
    "watchdog": _watchdog,
    "fault": _fault,
    "raises": _raises,
    "exits": _exits,
    "segfault": _segfault,
    "sleeps": _sleeps,
} | {f"checked_{name}": lambda x, backend, name=name: touch(name, backend) for name in BODIES}
AFTER = {
    "zero": lambda y, x, backend: y.zero_(),
    "half": lambda y, x, backend: y / 2,
    "tile_zero": _tile_zero,
    "nan_block": _nan_block,
    "kept": _kept,
    "noisy": _noisy,
    "late": _late,
    "wide": lambda y, x, backend: y.float(),
    "transposed": lambda y, x, backend: y.T.contiguous(),
    "flat": lambda y, x, backend: y.reshape(-1),
}
