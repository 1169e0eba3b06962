"""The safetensors files of a checkpoint: which tensor lies where, checked before a single value is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from model.checkpoint import names
from model.errors import CheckpointError

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies and what its file says of it. `dtype` in the spelling of safetensors, such as F8_E4M3."""

    file: Path
    key: str
    shape: tuple[int, ...]
    dtype: str


class Shards:
    """Memory-mapped shards. `stored` maps published names to what the files hold.

    Raises CheckpointError for a missing or damaged file, an index that disagrees with the files, or two tensors that
    mean the same one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._open: dict[Path, Any] = {}
        self.index: Path | None = None
        self.stored: dict[str, Stored] = {}
        listed = self._files()
        for file in sorted(set(listed.values())) if listed else self._lone():
            self._add(file)
        if listed:
            self._compare(listed)

    def read(self, name: str) -> torch.Tensor:
        """The tensor as it is stored, on the host, backed by the mapped file: don't write into it."""
        found = self.stored[name]
        try:
            return self._handle(found.file).get_tensor(found.key)
        except (SafetensorError, OSError, RuntimeError) as error:
            raise CheckpointError(found.file, found.key, error, "a readable tensor") from error

    def of(self, name: str) -> Iterator[str]:
        """Names of the scales that are stored for the matrix `name`."""
        stem = name.removesuffix(".weight")
        for suffix in (names.PACKED_SCALE, *names.NVFP4_SCALES):
            if stem + suffix in self.stored:
                yield stem + suffix

    def _files(self) -> dict[str, Path]:
        """Key to file, from the index; empty without one."""
        index = self.folder / INDEX
        if not index.is_file():
            return {}
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            listed = {str(key): self.folder / str(file) for key, file in table.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(index, "", f"{type(error).__name__}: {error}", 'JSON with a "weight_map"') from error
        for key, file in listed.items():
            if not file.is_file():
                raise CheckpointError(index, key, f"the missing shard {file.name}", "a file beside the index")
        self.index = index
        return listed

    def _lone(self) -> list[Path]:
        files = sorted(self.folder.glob("*.safetensors")) if self.folder.is_dir() else []
        if not files:
            raise CheckpointError(self.folder, "", "no .safetensors file", f"a folder with shards or {INDEX}")
        return files

    def _add(self, file: Path) -> None:
        handle = self._handle(file)
        for key in handle.keys():
            part = handle.get_slice(key)
            name = names.canonical(key)
            if name in self.stored:
                other = self.stored[name]
                raise CheckpointError(file, key, f"also stored as {other.key} in {other.file.name}", "one tensor")
            self.stored[name] = Stored(file, key, tuple(part.get_shape()), part.get_dtype())

    def _compare(self, listed: dict[str, Path]) -> None:
        held = {s.key: s.file for s in self.stored.values()}
        for key, file in listed.items():
            if key not in held:
                raise CheckpointError(file, key, "no such tensor", "a tensor, as the index says")
            if held[key] != file:
                raise CheckpointError(held[key], key, f"here, and {file.name} in the index", "one place")
        for key, file in held.items():
            if key not in listed:
                raise CheckpointError(file, key, "not in the index", f"an entry in {INDEX}")

    def _handle(self, file: Path) -> Any:
        if file not in self._open:
            try:
                self._open[file] = safe_open(str(file), framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(file, "", error, "a whole safetensors file") from error
        return self._open[file]
