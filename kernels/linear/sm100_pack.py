"""The one-off step that makes the layout of the block-scaled linear from a checkpoint's tensors, and its inverse.

Codes stay as they are: rows of k / 2 bytes, which TMA reads, each part padded with rows of zeros to whole tiles of 128.
Scales lie in the atoms that tcgen05 reads (PTX, scale factors of tcgen05.mma), padding 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.linear.pack import Weight, check_one_device
from kernels.linear.sm100_config import ATOM_ROWS, BLOCK, STEP_K

TMA_BYTES = 16
"""What the distance of rows is a multiple of (CUDA driver API, cuTensorMapEncodeTiled)."""


@dataclass(frozen=True, eq=False)
class PackedSm100:
    """NVFP4 weights as the kernel for sm_100a reads them.

    codes        uint8 [rows of all tiles, k / 2], the even k in the low nibble; rows a multiple of 16 bytes apart
    scales       E4M3 bytes, flat, in atoms of 128 rows x 4
    alpha        fp32 [parts]: the weights' global scales; interleaved: [2], of gate and of up
    parts        rows of each weight
    interleaved  one part, whose even rows are the gate's and whose odd ones are those of up
    """

    codes: torch.Tensor
    scales: torch.Tensor
    alpha: torch.Tensor
    parts: tuple[int, ...]
    k: int
    grouped: bool = False
    interleaved: bool = False

    @property
    def rows(self) -> int:
        """Rows of all parts, padding included."""
        return sum(-(-n // ATOM_ROWS) * ATOM_ROWS for n in self.parts)

    @property
    def scales_shape(self) -> tuple[int, int, int]:
        """Atoms along the rows, atoms along k, bytes of an atom."""
        return self.rows // ATOM_ROWS, -(-self.k // STEP_K), ATOM_ROWS * STEP_K // BLOCK


def pack_sm100(weights: Weight | Sequence[Weight], *, grouped: bool = False, interleaved: bool = False) -> PackedSm100:
    """One NVFP4 weight, or several of the same k that will share a launch, for the linears on sm_100a.

    weights: codes [n, k / 2], contiguous, scales [n, k / 16] or their flat 128 x 4 swizzle, alpha; k a multiple of 16.
    grouped: weights of a block-diagonal linear, of equal n, k a multiple of 64. interleaved: a gate and an up of equal
    n, for ``Swiglu``. Not for the inner loop: allocates and copies. Raises ValueError naming argument, value and what
    is allowed.
    """
    given = [weights] if isinstance(weights, Weight) else list(weights)
    shapes = [_shape(index, weight) for index, weight in enumerate(given)]
    if not given or len({k for _, k in shapes}) != 1:
        raise ValueError(f"pack_sm100: weights have k={[k for _, k in shapes]}; allowed: at least one, all of one k")
    parts, k = tuple(n for n, _ in shapes), shapes[0][1]
    check_one_device("pack_sm100", given)
    if interleaved and (grouped or len(parts) != 2 or parts[0] != parts[1]):
        raise ValueError(
            f"pack_sm100: interleaved=True with weights of n={list(parts)}, grouped={grouped}; "
            "allowed: two of equal n, False"
        )
    if grouped and (len(set(parts)) > 1 or k % STEP_K):
        raise ValueError(
            f"pack_sm100: grouped=True with weights of n={list(parts)}, k={k}; "
            f"allowed: equal n, k a multiple of {STEP_K}"
        )
    one = torch.ones((), dtype=torch.float32, device=given[0].codes.device)
    alpha = torch.stack([one if w.alpha is None else w.alpha.reshape(()) for w in given])
    codes = [w.codes.view(torch.uint8) for w in given]
    scales = [_linear_scales(w, n, k) for w, n in zip(given, parts, strict=True)]
    if interleaved:
        codes, scales = ([torch.stack(pair, dim=1).flatten(0, 1)] for pair in (codes, scales))
        parts = (sum(parts),)
    return PackedSm100(_padded_codes(codes, k), _atoms(scales, k), alpha, parts, k, grouped, interleaved)


def unpack_sm100(packed: PackedSm100) -> list[Weight]:
    """The exact inverse of ``pack_sm100``: codes, linear scales and alpha of each weight."""
    high, wide, _ = packed.scales_shape
    rows = packed.scales.view(high, wide, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(packed.rows, wide * 4)
    found, begin = [], 0
    for n in packed.parts:
        codes, scales = packed.codes[begin : begin + n], rows[begin : begin + n, : packed.k // BLOCK]
        step = 2 if packed.interleaved else 1
        for first in range(step):
            alpha = packed.alpha[len(found)]
            found.append(Weight(codes[first::step].contiguous(), scales[first::step].contiguous(), alpha))
        begin += -(-n // ATOM_ROWS) * ATOM_ROWS
    return found


def _padded_codes(parts: list[torch.Tensor], k: int) -> torch.Tensor:
    """All parts, each padded to whole tiles, rows a multiple of 16 bytes apart."""
    more = -(k // 2) % TMA_BYTES
    padded = [torch.nn.functional.pad(p, (0, more, 0, -len(p) % ATOM_ROWS)) for p in parts]
    return torch.cat(padded)[:, : k // 2]


def _atoms(parts: list[torch.Tensor], k: int) -> torch.Tensor:
    """Linear scales of all parts as atoms, one after the other along k, then along the rows."""
    more = -(k // BLOCK) % 4
    rows = torch.cat([torch.nn.functional.pad(p, (0, more, 0, -len(p) % ATOM_ROWS)) for p in parts])
    return rows.view(len(rows) // ATOM_ROWS, 4, 32, -1, 4).permute(0, 3, 2, 1, 4).reshape(-1)


def _linear_scales(weight: Weight, n: int, k: int) -> torch.Tensor:
    """E4M3 bytes [n, k / 16]."""
    scales = weight.scales.view(torch.uint8)
    if scales.dim() == 2:
        return scales
    atoms = scales.view(-(-n // ATOM_ROWS), -1, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return atoms.reshape(-(-n // ATOM_ROWS) * ATOM_ROWS, -1)[:n, : k // BLOCK]


def _shape(index: int, weight: Any) -> tuple[int, int]:
    """(n, k) of a weight whose tensors fit together."""
    where = f"pack_sm100: weights[{index}]"
    if not isinstance(weight, Weight):
        raise ValueError(f"{where} is a {type(weight).__name__}; allowed: kernels.linear.Weight")
    codes, scales = weight.codes, weight.scales
    if codes.dim() != 2 or codes.dtype not in (torch.uint8, torch.int8) or not codes.is_contiguous():
        raise ValueError(
            f"{where}.codes is {codes.dtype} {tuple(codes.shape)} with strides {codes.stride()}; "
            "allowed: contiguous torch.uint8 or torch.int8 of 2 dimensions"
        )
    n, k = codes.shape[0], 2 * codes.shape[1]
    if n < 1 or k < BLOCK or k % BLOCK:
        raise ValueError(f"{where} has n={n}, k={k}; allowed: n at least 1, k a multiple of {BLOCK}")
    flat = -(-n // ATOM_ROWS) * -(-k // STEP_K) * ATOM_ROWS * STEP_K // BLOCK
    fits = tuple(scales.shape) in ((n, k // BLOCK), (flat,))
    if scales.dtype not in (torch.uint8, torch.float8_e4m3fn) or not scales.is_contiguous() or not fits:
        raise ValueError(
            f"{where}.scales is {scales.dtype} {tuple(scales.shape)} with strides {scales.stride()}; allowed: "
            f"contiguous torch.uint8 or torch.float8_e4m3fn of shape {(n, k // BLOCK)}, or the 128 x 4 swizzle, flat, "
            f"of {flat} bytes"
        )
    if weight.alpha is not None and (weight.alpha.numel() != 1 or weight.alpha.dtype != torch.float32):
        raise ValueError(f"{where}.alpha is {weight.alpha.dtype} {tuple(weight.alpha.shape)}; allowed: one float32")
    return n, k
