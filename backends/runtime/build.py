"""Builds the stand-in runtime library from `runtime.cpp`, once per source and compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("runtime.cpp")
# The DSL finds its runtime by this file name.
NAME = "libcute_dsl_runtime.so"
FLAGS = ("-std=c++17", "-O1", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")


class CompilerMissing(RuntimeError):
    """The machine has no C++ compiler: the emulated backend cannot run here."""


def compiler() -> str:
    """Path of the C++ compiler: $CXX if set, else the first of c++, g++, clang++ on the PATH.

    Raises CompilerMissing (one line: what was looked for, how to name one).
    """
    named = os.environ.get("CXX")
    for candidate in (named,) if named else COMPILERS:
        found = shutil.which(candidate)
        if found:
            return found
    looked = f"CXX={named}" if named else ", ".join(COMPILERS)
    raise CompilerMissing(
        f"the emulated backend needs a C++ compiler (looked for {looked}): "
        f"install one (Debian, Ubuntu: apt install g++) or name it in CXX"
    )


def build(root: Path) -> Path:
    """Path of the library under `root`, compiled now if it is not there yet.

    Safe against concurrent builders and killed ones: the compiler writes to a temporary file, which is renamed.
    Raises CompilerMissing without a compiler, RuntimeError with the compiler's words if it refuses the source.
    """
    executable = compiler()
    source = SOURCE.read_bytes()
    digest = hashlib.sha256(b"\0".join([source, executable.encode(), *map(str.encode, FLAGS)])).hexdigest()[:16]
    library = root / digest / NAME
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        command = [executable, *FLAGS, "-o", temporary, str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr.strip()}")
        os.replace(temporary, library)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return library
