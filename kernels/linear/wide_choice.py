"""Which configuration of the linear of many tokens suits a weight and a number of tokens, as measured on an H200."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from kernels.linear.pack import MULTIPROCESSORS, Packed
from kernels.linear.wide_config import CLUSTERS, COLUMNS, WideConfig

ENOUGH = 100
"""CTAs that leave few multiprocessors without one."""
STAGE = 49_152
"""Bytes of a ring stage, if one unit of each tile isn't more."""
SHARED_RING = 108_544
"""Bytes of ring of a kernel that shares its multiprocessor with another CTA of it."""
RING = 225_280
"""Bytes of ring of a kernel that does not."""
SHARE = 16
"""Units of a tile from which two CTAs are faster than one, although they have to add their sums."""


def config_for(packed: Packed, m: int, settings: dict[str, Any] | None = None) -> WideConfig:
    """The kernel for m tokens; `settings` replace fields. Raises ValueError if there is none."""
    base = WideConfig(packed.format, packed.parts, packed.k, packed.grouped, packed.rows)
    return _chosen(base, m, tuple(sorted((settings or {}).items())))


@lru_cache(maxsize=4096)
def _chosen(base: WideConfig, m: int, settings: tuple[tuple[str, Any], ...]) -> WideConfig:
    """The same; a choice looks at some dozens of configurations."""
    given = dict(settings)
    blocks = [replace(c, **given) for c in blocks_for(base, m, given)]
    tried = [
        staged(config, given)
        for block in blocks
        for split in splits(block, m, given)
        for config in shares(split, given)
    ]
    possible = [config for config in tried if not config.problems()]
    if possible:
        return next((config for config in possible if config.groups > 1), possible[0])
    problems = (tried or blocks)[0].problems()
    raise ValueError(f"linear: {'; '.join(problems)} (kernels/linear/wide_config.py)")


def blocks_for(config: WideConfig, m: int, given: dict[str, Any]) -> list[WideConfig]:
    """Rows and columns of a CTA, the best first: as many as still leave enough CTAs, else as few as there are. More
    than 128 columns want two warpgroups with rows of their own; E4M3 weights, whose sums need registers twice, have no
    room for them."""
    if "columns" in given:
        widths = [given["columns"]]
    elif m <= 64:
        widths = [next(c for c in COLUMNS if c >= m)]
    else:
        widths = [c for c in (256, 128, 64) if c < 256 or config.weights != "fp8"]
    found = [
        replace(config, columns=columns, across=across)
        for columns in widths
        for across in (2, 1)
        if columns <= 128 or across == 2 or "columns" in given
    ]
    many = [c for c in found if ctas(c, m) >= ENOUGH]
    return many + sorted((c for c in found if c not in many), key=lambda c: (c.across, c.columns))


def ctas(config: WideConfig, m: int) -> int:
    """CTAs for m tokens."""
    return sum(config.blocks) * config.split * -(-m // config.columns)


def splits(config: WideConfig, m: int, given: dict[str, Any]) -> list[WideConfig]:
    """Clusters that may share K, the best first: with whole tiles the fewest CTAs whose share is small, with segments
    as many as there are multiprocessors for; then fewer."""
    if "split" in given:
        return [config]
    fitting = [replace(config, split=split) for split in CLUSTERS if config.tile_units % split == 0]
    fitting = [c for c in fitting if c.split == 1 or ctas(c, m) <= MULTIPROCESSORS]
    enough = [c for c in fitting if c.rows == 16 and c.share <= SHARE]
    return enough[:1] + fitting[::-1]


def shares(config: WideConfig, given: dict[str, Any]) -> list[WideConfig]:
    """Warpgroups that share rows and units of a stage, the best first: four warpgroups in all, two where sums need
    their registers; the largest stage up to STAGE bytes, or the smallest of all."""
    two = config.columns >= 64 or (config.weights == "fp8" and config.columns >= 32)
    two = two or config.across > 1
    alongs = [given["along"]] if "along" in given else [a for a in (4, 2, 1) if a * config.across <= (2 if two else 4)]
    units = [given["units"]] if "units" in given else [u for u in range(config.share, 0, -1) if config.share % u == 0]
    found = []
    for along in alongs:
        fitting = [replace(config, along=along, units=u) for u in units]
        fitting = [c for c in fitting if c.stage_steps % along == 0 or "along" in given]
        found += [c for c in fitting if c.stage_bytes <= STAGE] + [c for c in fitting if c.stage_bytes > STAGE][::-1]
    return found


def staged(config: WideConfig, given: dict[str, Any]) -> WideConfig:
    """`config` with as many ring stages as there is room for."""
    if "stages" in given:
        return config
    room = SHARED_RING if config.across == 2 and config.columns <= 16 else RING
    room -= config.shared_bytes()["sums"]
    return replace(config, stages=max(1, min(room // config.stage_bytes, config.turns)))
