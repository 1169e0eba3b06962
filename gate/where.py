"""Where an output is wrong, in units of a kernel: row blocks (32 are a warp), column blocks, leading indices."""

from __future__ import annotations

import torch
from torch import Tensor

from emulator.views.error_map import block_percent, whole_percent
from gate.result import ErrorMap

WARP_ROWS = 32
COLUMN_BLOCK = 16
_MOST_BLOCKS = 8
_MAP_ROWS, _MAP_COLUMNS = 32, 32


def _as_matrix(mask: Tensor) -> Tensor:
    """[leading..., rows, columns] as [all rows, columns]; a vector is one row."""
    return mask.reshape(-1, mask.shape[-1]) if mask.dim() >= 1 else mask.reshape(1, 1)


def _block(size: int, smallest: int, most: int) -> int:
    block = smallest
    while -(-size // block) > most:
        block *= 2
    return block


def _percent(lines: Tensor, block: int) -> list[int]:
    """Percent of true in each block of `block` neighbouring lines; `lines` is the mean of each line."""
    return [whole_percent(float(part.mean())) for part in lines.split(block)]


def _spread(name: str, lines: Tensor, smallest: int) -> list[str]:
    """`rows by 32: 100 0 0 0 %`, and `rows 0-31 only` if all that is wrong lies in one range."""
    size = lines.numel()
    block = _block(size, smallest, _MOST_BLOCKS)
    texts = []
    if size > block:
        unit = " (warps)" if name == "rows" and block == WARP_ROWS else ""
        texts.append(f"{name} by {block}{unit}: {' '.join(str(p) for p in _percent(lines, block))} %")
    hit = torch.nonzero(lines).flatten()
    first, last = int(hit[0]), int(hit[-1])
    if size > 1 and (first > 0 or last < size - 1):
        texts.append(f"{name} {first}–{last} only" if first != last else f"{name[:-1]} {first} only")
    return texts


def describe(mask: Tensor) -> str:
    """One line about a mask of wrong elements, at least one of them true."""
    share = whole_percent(float(mask.to(torch.float64).mean()))
    texts = [f"{share}% of elements"]
    grid = mask.to(torch.float64)
    if grid.dim() >= 3:
        for axis in range(grid.dim() - 2):
            others = [a for a in range(grid.dim()) if a != axis]
            per = grid.mean(dim=others)
            hit = torch.nonzero(per).flatten()
            if 0 < hit.numel() < per.numel():
                listed = " ".join(str(int(i)) for i in hit[:_MOST_BLOCKS]) + (
                    " …" if hit.numel() > _MOST_BLOCKS else ""
                )
                texts.append(f"dim {axis} at {listed} only, there")
                grid = grid.index_select(axis, hit)
    if grid.dim() >= 2:
        texts += _spread(
            "rows", grid.flatten(0, -3).mean(dim=(0, 2)) if grid.dim() >= 3 else grid.mean(dim=1), WARP_ROWS
        )
    if grid.dim() >= 1:
        texts += _spread("columns" if grid.dim() >= 2 else "elements", _as_matrix(grid).mean(dim=0), COLUMN_BLOCK)
    return "; ".join(texts).replace("there; ", "there ")


def error_map(mask: Tensor) -> ErrorMap:
    """Percent of wrong elements per block, at most 32 x 32 blocks."""
    grid = _as_matrix(mask)
    rows, columns = grid.shape
    row_block, column_block = _block(rows, 1, _MAP_ROWS), _block(columns, 1, _MAP_COLUMNS)
    percent = block_percent(grid.numpy(), row_block, column_block)
    return ErrorMap(rows=rows, columns=columns, row_block=row_block, column_block=column_block, percent=percent)
