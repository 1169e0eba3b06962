"""Runs the probe kernels that ran on an H200, as they stand in the archive of captured words, on the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import emulator
from emulator.memory.globals import GlobalMemory
from emulator.ptx.module import Module
from tests.emulator.isa.captured import archive, member, table

__all__ = ["Out", "archive", "launches", "member", "module", "run", "table", "u32", "u64"]

POLICIES = ("in_order", "latest", "random")
ENGINES = ("numpy", "llvm")
FILL = 0xCC
"""What the capture filled its output buffers with."""


@dataclass(frozen=True)
class Out:
    """An output buffer of `nbytes`, which comes back as bytes in place of the argument."""

    nbytes: int
    fill: int = FILL


def u32(value: int) -> bytes:
    """A 32-bit parameter."""
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def u64(value: int) -> bytes:
    """A 64-bit parameter."""
    return (value & (1 << 64) - 1).to_bytes(8, "little")


@cache
def module(name: str) -> Module:
    """The probe kernels of one group (mma, mma2, map, warp, tma, mbar)."""
    return emulator.parse(bytes(member(f"ptx/{name}")).decode())


@cache
def launches(name: str) -> dict[str, list[Any]]:
    """case -> [kernel, grid, block, arguments] of one group; [kernel] for mbar."""
    return {row[0]: row[1:] for row in table(f"launch/{name}")}


def run(
    group: str,
    kernel: str,
    grid: int,
    block: int,
    arguments: list[Any],
    memory: GlobalMemory | None = None,
    **settings: Any,
) -> list[np.ndarray]:
    """The output buffers (uint8) in their order. Arguments: arrays (copied to memory of their own), `Out`, or the bytes
    of a parameter. Both engines run, and leave the same bytes in all of `memory`."""
    memory = memory or GlobalMemory()
    parameters, outputs = [], []
    for argument in arguments:
        if isinstance(argument, bytes):
            parameters.append(argument)
            continue
        if isinstance(argument, Out):
            region = memory.allocate(argument.nbytes, f"output {len(outputs)}", fill=argument.fill)
            outputs.append(region)
        else:
            raw = np.ascontiguousarray(argument).view(np.uint8).ravel()
            region = memory.allocate(raw.size, f"input {len(parameters)}")
            region.views[1][:] = raw
        parameters.append(u64(region.address))
    settings.setdefault("arithmetic", "exact")
    before = [region.views[1].copy() for region in memory.regions]
    after = []
    for engine in ENGINES:
        for region, raw in zip(memory.regions, before, strict=True):
            region.views[1][:] = raw
        shape = ((grid, 1, 1), (block, 1, 1))
        emulator.run(module(group), kernel, *shape, parameters, memory, engine=engine, **settings)
        after.append([region.views[1].copy() for region in memory.regions])
    assert all((x == y).all() for x, y in zip(*after, strict=True)), f"{kernel}: the engines differ"
    return [region.views[1].copy() for region in outputs]
