"""Does a checkpoint hold what a configuration wants? Answered from the headers of its files alone."""

from __future__ import annotations

from pathlib import Path

from model.checkpoint import names
from model.checkpoint.shards import Shards, Stored
from model.config import Config
from model.errors import CheckpointError
from model.weights import Form, Spec, specs

FLOATS = ("BF16", "F32", "F16")
BYTES = ("U8", "I8", "F4", "F8_E8M0")
BLOCK = 128


def check(config: Config, shards: Shards) -> bool:
    """Compare every tensor with the configuration; returns whether there is a block of multi-token prediction.

    A checkpoint without any tensor of that block is whole (transformers drops it). Raises CheckpointError for the first
    tensor that is missing, superfluous, or of a wrong shape or dtype.
    """
    has_mtp = any(name.startswith("mtp.") for name in shards.stored)
    wanted = specs(config, mtp=has_mtp)
    for name, found in shards.stored.items():
        if names.base(name) not in wanted:
            raise CheckpointError(found.file, found.key, "a tensor", "nothing of that name in this configuration")
    for name, spec in wanted.items():
        if name not in shards.stored:
            raise CheckpointError(_where(shards), name, "no such tensor", f"{list(spec.shape)} ({spec.role})")
        form_of(shards, name, spec)
    return has_mtp


def form_of(shards: Shards, name: str, spec: Spec) -> Form | None:
    """How a tensor is stored: None if as plain values. Raises CheckpointError if neither fits the specification."""
    found = shards.stored[name]
    scales = {s.removeprefix(name.removesuffix(".weight")): shards.stored[s] for s in shards.of(name)}
    if spec.role not in ("linear", "expert"):
        if scales:
            extra = next(iter(scales.values()))
            raise CheckpointError(extra.file, extra.key, "a scale", f"none: {name} is stored as plain values")
        _plain(found, spec)
        return None
    n, k = spec.shape
    if found.dtype == "F8_E4M3":
        _expect(found, spec.shape, ("F8_E4M3",))
        blocks = (-(-n // BLOCK), -(-k // BLOCK))
        _scale(found, scales, names.PACKED_SCALE, blocks, ("F8_E8M0", "U8", "F32"))
        return "fp8"
    if found.dtype in BYTES:
        packed = (n, k // 2)
        if names.PACKED_SCALE in scales:
            _expect(found, packed, BYTES)
            _scale(found, scales, names.PACKED_SCALE, (n, k // 32), ("F8_E8M0", "U8"))
            return "mxfp4"
        _expect(found, packed, BYTES)
        _scale(found, scales, ".weight_scale", (n, k // 16), ("F8_E4M3", "U8"))
        _scale(found, scales, ".weight_scale_2", (), ("F32",))
        if ".input_scale" in scales:
            _scale(found, scales, ".input_scale", (), ("F32",))
        return "nvfp4"
    if scales:
        extra = next(iter(scales.values()))
        raise CheckpointError(extra.file, extra.key, f"a scale beside {found.dtype} values", "codes, or no scale")
    _plain(found, spec)
    return None


def _plain(found: Stored, spec: Spec) -> None:
    _expect(found, spec.shape, ("I64", "I32") if spec.role == "table" else FLOATS)


def _expect(found: Stored, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
    if found.dtype not in dtypes or found.shape != shape:
        raise CheckpointError(
            found.file, found.key, f"{found.dtype} {list(found.shape)}", f"{' or '.join(dtypes)} {list(shape)}"
        )


def _scale(
    found: Stored, scales: dict[str, Stored], suffix: str, shape: tuple[int, ...], dtypes: tuple[str, ...]
) -> None:
    if suffix not in scales:
        missing = found.key.removesuffix(".weight") + suffix
        raise CheckpointError(found.file, missing, "no such tensor", f"scales {list(shape)} of {found.dtype} codes")
    one = shape == () and scales[suffix].shape == (1,)
    _expect(scales[suffix], (1,) if one else shape, dtypes)


def _where(shards: Shards) -> Path:
    """The file in which a tensor is missing, as far as one can say."""
    files = {s.file for s in shards.stored.values()}
    return shards.index or (files.pop() if len(files) == 1 else shards.folder)
