"""The one-off step that makes the layout of kernels/linear/layout.py from a checkpoint's tensors, and its inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels.linear import layout
from kernels.linear.config import FORMATS, GROUP, LinearConfig

MULTIPROCESSORS = 132
"""Of an H200: tiles get fewer rows until there are about as many tiles."""
CHUNK_TILES = 1024
"""Tiles packed at a time: the intermediate words are eight times as large as the weight."""
LARGEST_E4M3 = 0x7E
"""The byte of 448; those behind it are NaN and numbers with a sign, which block scales don't have."""
BLOCKS = {"nvfp4": 16, "mxfp4": 32, "fp8": 128}
"""k that one scale covers."""


@dataclass(frozen=True)
class Weight:
    """One linear's weight as a checkpoint has it.

    codes    E2M1: uint8 or int8 [n, k / 2], the even k in the low nibble. E4M3: uint8 or float8_e4m3fn [n, k]
    scales   nvfp4: E4M3 [n, k / 16] of 0 to 448, as bytes or float8_e4m3fn, or the flat 128 x 4 swizzle of it. mxfp4:
             UE8M0 bytes [n, k / 32]. fp8: [ceil(n / 128), ceil(k / 128)], UE8M0 bytes or fp32
    alpha    fp32 scalar on the weight's device that every output is multiplied by (the global scale); 1 if None
    """

    codes: torch.Tensor
    scales: torch.Tensor
    alpha: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights as the kernel reads them. `data`: uint8, all tiles of all parts; `alpha`: fp32 [parts]."""

    data: torch.Tensor
    alpha: torch.Tensor
    format: str
    parts: tuple[int, ...]
    k: int
    rows: int
    grouped: bool = False
    activation: str = "f16"

    @property
    def config(self) -> LinearConfig:
        """Shapes of the layout; what else is in it does not change the layout."""
        tokens = max(1, self.rows // 2) if self.format == "fp8" else 1
        small = {"warps": 4, "stages": 1, "in_flight": 1}
        return LinearConfig(self.format, self.activation, self.parts, self.k, self.grouped, self.rows, tokens, **small)


def rows_for(parts: Sequence[int], k: int, activation: str = "f16") -> int:
    """Rows of a tile: as many as still leave a tile (with e4m3 four) for nearly every multiprocessor, and a whole
    unit to
    a segment."""
    wanted = MULTIPROCESSORS * (GROUP if activation == "e4m3" else 1) * 9 // 10
    for rows in (16, 8):
        if sum(-(-n // rows) for n in parts) >= wanted or k < 256 * 16 // rows:
            return rows
    return 4


def pack(
    weights: Weight | Sequence[Weight],
    *,
    format: str = "nvfp4",
    activation: str = "f16",
    rows: int | None = None,
    grouped: bool = False,
) -> Packed:
    """One weight, or several of the same k and format that will share a launch, in the kernel's layout.

    activation: "f16" for products of BF16 activations as they are, "e4m3" for activations rounded to E4M3: another
    kernel, another layout. rows: rows of a tile (16, 8 or 4); by default what suits 132 multiprocessors. grouped:
    weights of a block-diagonal linear. Not for the inner loop: allocates, and works through tiles in pieces. Raises
    ValueError naming argument, value and what is allowed.
    """
    given = [weights] if isinstance(weights, Weight) else list(weights)
    shapes = [_shape(index, weight, format) for index, weight in enumerate(given)]
    if not given or len({k for _, k in shapes}) != 1:
        raise ValueError(f"pack: weights have k={[k for _, k in shapes]}; allowed: at least one weight, all of one k")
    parts, k = tuple(n for n, _ in shapes), shapes[0][1]
    check_one_device("pack", given)
    device = given[0].codes.device
    one = torch.ones((), dtype=torch.float32, device=device)
    alpha = torch.stack([one if w.alpha is None else w.alpha.reshape(()) for w in given])
    nothing = torch.empty(0, dtype=torch.uint8, device=device)
    empty = Packed(nothing, alpha, format, parts, k, rows or rows_for(parts, k, activation), grouped, activation)
    problems = empty.config.problems()
    if problems:
        raise ValueError(f"pack: {'; '.join(problems)}")
    pieces = [piece for index, weight in enumerate(given) for piece in _pieces(index, weight, empty)]
    data = torch.cat(pieces)
    if empty.config.rounded:
        data = torch.nn.functional.pad(data, (0, 0, 0, 0, 0, -len(data) % GROUP))
        data = data.unflatten(0, (-1, GROUP)).transpose(1, 2)
    return replace(empty, data=data.flatten())


def unpack(packed: Packed) -> list[Weight]:
    """The exact inverse of ``pack``: codes as bytes, linear scales (fp8: fp32), alpha of each weight."""
    config, found = packed.config, []
    data = packed.data.view(-1, config.units, config.unit_bytes)
    if config.rounded:
        data = packed.data.view(-1, config.units, GROUP, config.unit_bytes).transpose(1, 2).flatten(0, 1)
    of_part = data[: config.tile_count].split(config.tiles)
    for index, (n, units) in enumerate(zip(packed.parts, of_part, strict=True)):
        words, rest = units[..., : config.weight_bytes], units[..., config.weight_bytes :]
        if packed.format == "fp8":
            codes = layout.from_tiles(layout.e4m3_codes(words, config), config, n, packed.k)
            scales = _block_scales(rest, config, n, packed.k)
        else:
            nibbles = layout.from_tiles(_codes(words, config), config, n, packed.k)
            codes = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
            columns = packed.k // BLOCKS[packed.format]
            scales = layout.from_tiles(layout.scales_of_bytes(rest), config, n, columns)
        found.append(Weight(codes, scales, packed.alpha[index]))
    return found


def check_one_device(op: str, weights: list[Weight]) -> None:
    """Raise ValueError unless all tensors lie on one device."""
    devices = {x.device for w in weights for x in (w.codes, w.scales, w.alpha) if x is not None}
    if len(devices) > 1:
        raise ValueError(f"{op}: tensors on {', '.join(sorted(map(str, devices)))}; allowed: one device")


def _codes(words: torch.Tensor, config: LinearConfig) -> torch.Tensor:
    """E2M1 codes of packed words."""
    return layout.e2m1_codes_e4m3(words) if config.rounded else layout.e2m1_codes(words)


def _pieces(index: int, weight: Weight, packed: Packed) -> list[torch.Tensor]:
    """Packed tiles of one weight, CHUNK_TILES at a time."""
    config, rows, n = packed.config, CHUNK_TILES * packed.rows, packed.parts[index]
    codes, scales = weight.codes.view(torch.uint8), _linear_scales(weight, n, packed)
    if packed.format == "nvfp4" and bool((scales > LARGEST_E4M3).any()):
        raise ValueError(
            f"pack: weights[{index}].scales has bytes above {LARGEST_E4M3:#x}; allowed: E4M3 without sign or NaN"
        )
    found = []
    for begin in range(0, n, rows):
        part = codes[begin : begin + rows]
        spread = layout.to_tiles(scales[begin : begin + rows], config, BLOCKS[packed.format])
        if packed.format == "fp8":
            words = layout.e4m3_words(layout.to_tiles(part, config, 1), config)
            # One scale for each segment: the rows of a tile lie in one block of 128 rows.
            _, segment = layout.rows_of_tile(packed.rows)
            rest = words.new_zeros((*words.shape[:2], 4, 4))
            for s in range(config.segments):
                h, g = (segment == s).nonzero()[0].tolist()
                rest[:, :, s] = spread[:, :, h, g].contiguous().view(torch.uint8)
            found.append(torch.cat((words, rest.flatten(2)), dim=-1))
        else:
            nibbles = torch.stack((part & 15, part >> 4), dim=-1).flatten(1)
            tiles = layout.to_tiles(nibbles, config, 1)
            words = layout.e2m1_words_e4m3(tiles) if config.rounded else layout.e2m1_words(tiles)
            found.append(torch.cat((words, layout.scale_bytes(spread)), dim=-1))
    return found


def _linear_scales(weight: Weight, n: int, packed: Packed) -> torch.Tensor:
    """Scales row by row: bytes [n, k / 16 or 32] for E2M1, fp32 [n, ceil(k / 128)] for E4M3."""
    scales = weight.scales
    if packed.format == "fp8":
        if scales.dtype == torch.uint8:
            exponent = scales.to(torch.int32)
            bits = torch.where(exponent == 0, 1 << 22, torch.where(exponent == 255, 0x7FC00000, exponent << 23))
            scales = bits.view(torch.float32)
        return scales.repeat_interleave(128, dim=0)[:n]
    scales = scales.view(torch.uint8)
    if scales.dim() == 1:
        columns = -(-(packed.k // 16) // 4) * 4
        atoms = scales.view(-1, columns // 4, 32, 4, 4).permute(0, 3, 2, 1, 4)
        scales = atoms.reshape(-1, columns)[:n, : packed.k // 16]
    return scales


def _block_scales(rest: torch.Tensor, config: LinearConfig, n: int, k: int) -> torch.Tensor:
    """fp32 [ceil(n / 128), ceil(k / 128)] of the scales of all units."""
    per_tile = rest.contiguous().view(torch.float32)[..., : config.segments].transpose(1, 2).flatten(1)
    return per_tile[:: 128 // config.rows, : -(-k // 128)][: -(-n // 128)].contiguous()


def _shape(index: int, weight: Any, format: str) -> tuple[int, int]:
    """(n, k) of a weight whose tensors fit together."""
    if format not in FORMATS:
        raise ValueError(f"pack: format={format!r}; allowed: {', '.join(FORMATS)}")
    where = f"pack: weights[{index}]"
    if not isinstance(weight, Weight):
        raise ValueError(f"{where} is a {type(weight).__name__}; allowed: kernels.linear.Weight")
    codes, scales = weight.codes, weight.scales
    bytes_ = (torch.uint8, torch.int8) + ((torch.float8_e4m3fn,) if format == "fp8" else ())
    if codes.dim() != 2 or codes.dtype not in bytes_ or not codes.is_contiguous():
        raise ValueError(
            f"{where}.codes is {codes.dtype} {tuple(codes.shape)} with strides {codes.stride()}; "
            f"allowed: contiguous {' or '.join(map(str, bytes_))} of 2 dimensions"
        )
    n, k = codes.shape[0], codes.shape[1] * (1 if format == "fp8" else 2)
    block = BLOCKS[format]
    step = 32 if format == "mxfp4" else 16
    if n < 1 or k < 1 or k % step:
        raise ValueError(f"{where} has n={n}, k={k}; allowed: n at least 1, k a multiple of {step}")
    wanted = (-(-n // 128), -(-k // 128)) if format == "fp8" else (n, k // block)
    flat = -(-n // 128) * 128 * (-(-(k // 16) // 4) * 4)
    kinds = {"nvfp4": (torch.uint8, torch.float8_e4m3fn), "mxfp4": (torch.uint8,), "fp8": (torch.uint8, torch.float32)}[
        format
    ]
    swizzled = format == "nvfp4" and scales.dim() == 1 and scales.numel() == flat
    if scales.dtype not in kinds or not scales.is_contiguous() or (tuple(scales.shape) != wanted and not swizzled):
        also = f", or the 128 x 4 swizzle, flat, of {flat} bytes" if format == "nvfp4" else ""
        raise ValueError(
            f"{where}.scales is {scales.dtype} {tuple(scales.shape)}; "
            f"allowed: contiguous {' or '.join(map(str, kinds))} of shape {wanted}{also}"
        )
    if weight.alpha is not None and (weight.alpha.numel() != 1 or weight.alpha.dtype != torch.float32):
        raise ValueError(f"{where}.alpha is {weight.alpha.dtype} {tuple(weight.alpha.shape)}; allowed: one float32")
    return n, k
