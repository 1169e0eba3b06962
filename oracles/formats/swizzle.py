"""The layout of block scales that tcgen05 block-scaled products read: atoms of 128 rows x 4 scales, 512 bytes each.

    offset(m, k) = ((m div 128) (Ks / 4) + k div 4) 512 + (m mod 32) 16 + ((m mod 128) div 32) 4 + k mod 4

with M padded to 128 and Ks to 4 (PTX, "scale factor matrix" of tcgen05.mma; one row of 16 bytes per lane and four row
groups).
"""

from __future__ import annotations

import torch

from oracles.precision import expect


def padded(rows: int, columns: int) -> tuple[int, int]:
    """Sizes after padding: rows to a multiple of 128, columns to a multiple of 4."""
    return -(-rows // 128) * 128, -(-columns // 4) * 4


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """scales [M, Ks] (any one-byte or other dtype) -> [padded M x padded Ks] flat, padding 0."""
    expect("formats.swizzle", scales.ndim == 2, "scales.shape", tuple(scales.shape), "[M, Ks]")
    rows, columns = padded(*scales.shape)
    full = scales.new_zeros(rows, columns)
    full[: scales.shape[0], : scales.shape[1]] = scales
    return full.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4).reshape(-1)


def unswizzle(flat: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Inverse: flat [padded rows x padded columns] -> [rows, columns]; what the padding holds is ignored."""
    m, k = padded(rows, columns)
    expect("formats.unswizzle", flat.numel() == m * k, "elements", flat.numel(), f"{m} x {k} for {rows} x {columns}")
    full = flat.reshape(m // 128, k // 4, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(m, k)
    return full[:rows, :columns].contiguous()


def offsets(rows: int, columns: int, device: torch.device | None = None) -> torch.Tensor:
    """offset(m, k), int64 [rows, columns]."""
    m = torch.arange(rows, device=device)[:, None]
    k = torch.arange(columns, device=device)
    atom = (m // 128) * (padded(rows, columns)[1] // 4) + k // 4
    return atom * 512 + (m % 32) * 16 + (m % 128) // 32 * 4 + k % 4
