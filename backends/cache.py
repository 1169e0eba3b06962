"""A folder per compiled kernel, on disk, shared by processes.

`<root>/kernels/<digest>/` holds the kernel's files and `key.json`, which names each file with its size and SHA-256
and is written last. An entry is made in a temporary folder and renamed: it is there whole or not at all. An entry
that doesn't match its `key.json` (truncated, half deleted, edited) is a miss and is replaced. One builder per kernel:
others wait for its lock, which is a `flock` and dies with its holder. The cache is not bounded; `clear` empties it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEY = "key.json"
NAME = "dsv4-workbench"

# flock belongs to the open file, which a forked child shares: without this, a child could outlive its parent's lock.
_held: set[int] = set()


def _drop_locks_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_locks_in_child)


def default_root() -> Path:
    """$WORKBENCH_CACHE, else $XDG_CACHE_HOME/dsv4-workbench, else ~/.cache/dsv4-workbench."""
    named = os.environ.get("WORKBENCH_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / NAME


class Cache:
    """The entries below `root` (created when first written to)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def folder(self, digest: str) -> Path:
        """Where the entry is, if it is there."""
        return self.root / "kernels" / digest

    def find(self, digest: str) -> Path | None:
        """The entry's folder, or None when there is none or it is damaged. Reads every file of it."""
        folder = self.folder(digest)
        try:
            listed = json.loads((folder / KEY).read_text())["files"]
            whole = all(_describe(folder / name) == expected for name, expected in listed.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return folder if whole and listed else None

    def get(self, digest: str, build: Callable[[Path], dict[str, Any]]) -> tuple[Path, bool]:
        """The entry's folder, and whether `build` made it now.

        `build` writes files into the folder that it is given and returns what `key.json` is to say besides. If it
        raises, nothing is kept and the next caller builds.
        """
        found = self.find(digest)
        if found:
            return found, False
        with self._lock(digest):
            found = self.find(digest)
            if found:
                return found, False
            return self._make(digest, build), True

    def discard(self, digest: str) -> None:
        """Remove one entry."""
        self._move_away(self.folder(digest))

    def clear(self) -> None:
        """Remove every entry and what killed builds left behind. A build that runs meanwhile is built again by its
        owner's next caller."""
        for part in ("kernels", "building"):
            self._move_away(self.root / part)

    def _make(self, digest: str, build: Callable[[Path], dict[str, Any]]) -> Path:
        building = self.root / "building"
        building.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{digest[:16]}-", dir=building))
        try:
            says = build(temporary)
            files = {file.name: _describe(file) for file in sorted(temporary.iterdir())}
            (temporary / KEY).write_text(json.dumps(says | {"files": files}, indent=1, sort_keys=True))
            folder = self.folder(digest)
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._move_away(folder)
            temporary.rename(folder)
            return folder
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _move_away(self, folder: Path) -> None:
        """Remove a folder that others may be reading: it vanishes by a rename, then its files go."""
        if not folder.exists():
            return
        self.root.mkdir(parents=True, exist_ok=True)
        grave = Path(tempfile.mkdtemp(prefix="removed-", dir=self.root))
        try:
            folder.rename(grave / "entry")
        except FileNotFoundError:
            pass
        shutil.rmtree(grave, ignore_errors=True)

    @contextmanager
    def _lock(self, digest: str) -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(locks / digest, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        _held.add(descriptor)
        try:
            # Threads of one process have each their own open file, so flock excludes them from one another too.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            _held.discard(descriptor)
            os.close(descriptor)


def _describe(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


class Memory:
    """What this process has compiled or loaded, by digest: the same object for the same key."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._lock = threading.RLock()

    def get(self, digest: str) -> Any:
        """The object, or None."""
        return self._known.get(digest)

    def put(self, digest: str, value: Any) -> None:
        """Remember an object."""
        with self._lock:
            self._known[digest] = value
