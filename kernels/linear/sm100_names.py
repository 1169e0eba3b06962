"""Names of tensor memory, warps and mbarriers of the block-scaled linear, for the emulator's views and breakpoints."""

from __future__ import annotations

from typing import Any

from kernels.linear.sm100_config import LinearSm100Config


def names(config: LinearSm100Config) -> dict[str, Any]:
    """`fields` {name: (column, columns, dtype, writer)}, `roles` {warp: role} and `barriers` (names in the order of
    their addresses), as `emulator.views.Recorder(**names(config))` and `emulator.debug` take them."""
    return {"fields": fields(config), "roles": roles(config), "barriers": barriers(config)}


def fields(config: LinearSm100Config) -> dict[str, tuple[int, int, str, str]]:
    """Columns of tensor memory: sums of one or two tiles, then the scales of a stage."""
    found = {f"sums[{i}]": (i * config.columns, config.columns, "f32", "mma") for i in range(config.accumulators)}
    found["scales A"] = (config.scales_a, config.scales_b - config.scales_a, "e4m3", "cp")
    found["scales B"] = (config.scales_b, config.scales_a + config.scale_columns - config.scales_b, "e4m3", "cp")
    return found


def roles(config: LinearSm100Config) -> dict[int, str]:
    """Warp → role."""
    warps = config.warps
    return {warp: "epilogue" for warp in warps.epilogue} | {warps.mma: "mma", warps.load: "load"}


def barriers(config: LinearSm100Config) -> list[str]:
    """mbarriers as `kernel()` allocates them: per pipeline all full ones, then all empty ones; then those of a shared
    K."""
    found = [
        f"{pipe.name}.{side}[{stage}]"
        for pipe in config.pipes.values()
        for side in ("full", "empty")
        for stage in range(pipe.stages)
    ]
    return found + (["sums.arrived", "sums.taken"] if config.split > 1 else [])
