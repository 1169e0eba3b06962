"""Native images on disk, shared by processes: one file per kernel, engine version and processor.

A file is a SHA-256 of the rest, and a pickled image. It is written to a temporary name and renamed, so it is there
whole or not at all; what doesn't match its digest, or can't be read, counts as missing. The folder is
`$WORKBENCH_CACHE/native`, else `native` below the user's cache. It may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

NAME = "dsv4-workbench"
_PACKAGE = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """Where the images are."""
    named = os.environ.get("WORKBENCH_CACHE")
    if named:
        return Path(named).expanduser() / "native"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME / "native"


@cache
def version() -> str:
    """Everything that changes what is made of a kernel: the emulator's sources, LLVM and the processor."""
    import llvmlite
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    features = sorted(llvm.get_host_cpu_features().items())
    digest.update(repr((llvmlite.__version__, llvm.llvm_version_info, llvm.get_host_cpu_name(), features)).encode())
    return digest.hexdigest()


def find(name: str) -> Any:
    """What is kept under a name, or None."""
    return _read(_path(name))


def keep(name: str, image: Any) -> None:
    """Write something under a name. A disk that refuses is no error, nor is an image that cannot be pickled."""
    path = _path(name)
    try:
        body = pickle.dumps(image, protocol=5)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(file.name, path)
    except (OSError, pickle.PicklingError, AttributeError, TypeError):
        return


def _path(name: str) -> Path:
    return folder() / hashlib.sha256(f"{version()} {name}".encode()).hexdigest()


def _read(path: Path) -> Any:
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(raw[32:]).digest() != raw[:32]:
        return None
    try:
        return pickle.loads(raw[32:])
    except Exception:  # a pickle of another Python, say: it is made anew
        return None
