"""What the attention kernel calls its tensor memory, warps and mbarriers, for the emulator's views and breakpoints."""

from __future__ import annotations

from typing import Any

from kernels.fmha.config import FmhaConfig


def names(config: FmhaConfig) -> dict[str, Any]:
    """`fields` {name: (column, columns, dtype, writer)}, `roles` {warp: role} and `barriers` (names in the order of
    their addresses), as `emulator.views.Recorder(**names(config))` and `emulator.debug` take them."""
    return {"fields": fields(config), "roles": roles(config), "barriers": barriers(config)}


def fields(config: FmhaConfig) -> dict[str, tuple[int, int, str, str]]:
    """Columns of tensor memory. P lies over the first half of the stage of S that it replaces."""
    tmem = config.tmem
    found = {}
    for stage in range(tmem.S.stages):
        found[f"S[{stage}]"] = (tmem.S.first + stage * tmem.S.stride, tmem.S.width, "f32", "mma")
    if config.has_pv:
        for stage in range(tmem.P.stages):
            found[f"P[{stage}]"] = (tmem.P.first + stage * tmem.P.stride, tmem.P.width, config.dtype, "st")
        found["O"] = (tmem.O.first, tmem.O.width, "f32", "")
    return found


def roles(config: FmhaConfig) -> dict[int, str]:
    """Warp → role."""
    warps = config.warps
    found = {warp: "softmax" for warp in warps.softmax} | {warp: "correction" for warp in warps.correction}
    return found | {warps.mma: "mma", warps.load: "load"}


def barriers(config: FmhaConfig) -> list[str]:
    """mbarriers as `kernel()` allocates them: per pipeline all full ones, then all empty ones."""
    return [
        f"{pipe.name}.{side}[{stage}]"
        for pipe in config.pipes.values()
        for side in ("full", "empty")
        for stage in range(pipe.stages)
    ]
