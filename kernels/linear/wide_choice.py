"""Which configuration of the linear of many tokens suits a weight and a number of tokens, as measured on an H200."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from kernels.linear.pack import MULTIPROCESSORS, Packed
from kernels.linear.wide_config import CLUSTERS, COLUMNS, WideConfig

ENOUGH = 100
"""CTAs that leave few multiprocessors without one."""
FEW = 16
"""Tokens up to which a CTA takes 64 rows, and up to which several CTAs of one warpgroup may share a multiprocessor."""
MANY = 64
"""Tokens of a CTA beyond which its ring takes what there is; a deeper one than needed makes the others slower."""
STAGE, FEW_STAGE, SMALL_STAGE = 52_000, 40_960, 25_600
"""Bytes of a ring stage, if one unit of each tile isn't more; of FEW tokens; of small CTAs."""
RING, SHORT_RING, WHOLE_RING = 225_280, 150_528, 163_840
"""Bytes of ring of many tokens; of fewer, at most in STAGES stages; of four warpgroups, which fill a multiprocessor."""
STAGES, SMALL_STAGES = 3, 2
SHARE = 16
"""Units of a tile from which two CTAs are faster than one, although they have to add their sums."""
LONG = 8
"""Ring stages a CTA from which nothing is gained by what is unpacked before the activations are there."""
AHEAD, WHOLE_AHEAD = 3, 4
"""Half units unpacked before that, at most; of eight tokens, or of small CTAs but those of E4M3 weights; of more than
MANY tokens one."""


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
        staged(config, m, given)
        for block in blocks
        for split in splits(block, m, given)
        for config in shares(split, m, given)
    ]
    possible = [config for config in tried if not config.problems()]
    if possible:
        return next((config for config in possible if config.groups > 1 or small(config, m)), possible[0])
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
        for across in ((1,) if columns <= FEW else (2, 1))
        if columns <= 128 or across == 2 or "columns" in given
    ]
    many = [c for c in found if ctas(c, m) >= ENOUGH]
    return many + sorted((c for c in found if c not in many), key=lambda c: (c.across, c.columns))


def ctas(config: WideConfig, m: int) -> int:
    """CTAs for m tokens."""
    return sum(config.blocks) * config.split * -(-m // config.columns)


def small(config: WideConfig, m: int) -> bool:
    """Whether there are so many blocks of a few tokens that CTAs of one warpgroup share multiprocessors."""
    return config.columns <= FEW and config.rows == 16 and ctas(config, m) > MULTIPROCESSORS


def splits(config: WideConfig, m: int, given: dict[str, Any]) -> list[WideConfig]:
    """Clusters that may share K, the best first: with whole tiles the fewest CTAs whose share is small, with segments
    as many as there are multiprocessors for; then fewer."""
    if "split" in given:
        return [config]
    fitting = [replace(config, split=split) for split in CLUSTERS if config.tile_units % split == 0]
    # At 16 tokens two CTAs of a multiprocessor, with a quarter of K each, hide each other's waits.
    quarters = [c for c in fitting if c.columns == FEW and c.split == 4 and SHARE < c.tile_units <= 2 * SHARE]
    quarters = [c for c in quarters if small(c, m) and ctas(c, m) <= 2 * MULTIPROCESSORS]
    fitting = [c for c in fitting if c.split == 1 or ctas(c, m) <= MULTIPROCESSORS]
    enough = [c for c in fitting if c.rows == 16 and c.share <= SHARE]
    return quarters + enough[:1] + fitting[::-1]


def shares(config: WideConfig, m: int, given: dict[str, Any]) -> list[WideConfig]:
    """Warpgroups that share rows and units of a stage, the best first: four warpgroups in all, two where sums need
    their registers, one where CTAs share multiprocessors; the largest stage that is not too large, or the smallest of
    all."""
    room = 2 * FEW if config.rows == 16 and config.weights != "fp8" else FEW
    most = 4 if config.columns <= room and config.across == 1 else 2
    alongs = [1, 2, 4] if small(config, m) else [a for a in (4, 2, 1) if a * config.across <= most]
    alongs = [given["along"]] if "along" in given else alongs
    units = [given["units"]] if "units" in given else [u for u in range(config.share, 0, -1) if config.share % u == 0]
    stage = SMALL_STAGE if small(config, m) else FEW_STAGE if config.columns <= FEW else STAGE
    found = []
    for along in alongs:
        fitting = [replace(config, along=along, units=u) for u in units]
        fitting = [c for c in fitting if c.stage_steps % along == 0 or "along" in given]
        found += [c for c in fitting if c.stage_bytes <= stage] + [c for c in fitting if c.stage_bytes > stage][::-1]
    return found


def staged(config: WideConfig, m: int, given: dict[str, Any]) -> WideConfig:
    """`config` with its ring stages, and what is unpacked ahead of the activations."""
    if "stages" not in given:
        most = SMALL_STAGES if small(config, m) else STAGES if config.columns <= MANY else config.turns
        whole = (RING - config.shared_bytes()["sums"]) // config.stage_bytes
        ring = WHOLE_RING if config.groups > 2 else SHORT_RING
        short = ring // config.stage_bytes if config.columns <= MANY else 0
        config = replace(config, stages=max(1, min(short if short > 1 else whole, config.turns, most)))
    return config if "ahead" in given else replace(config, ahead=ahead(config, m))


def ahead(config: WideConfig, m: int) -> int:
    """Half units that are unpacked before their activations are there."""
    if config.columns <= FEW and config.turns >= LONG:
        return 0
    alone = small(config, m) and config.split == 1
    if config.columns > MANY or (config.columns == FEW and alone):
        return 1
    whole = config.columns < FEW or (small(config, m) and config.weights != "fp8")
    most = WHOLE_AHEAD if whole else AHEAD
    return min(len(config.turn_halves), most)
