"""The small model that runs everywhere: random weights, written once into the cache folder of this project."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from model import text
from model.checkpoint import random_tensors, write
from model.config import RELEASES, Config

SEED = 0


def folder() -> Path:
    """The checkpoint, made if it isn't there: a moment's work. Native format, with a tokenizer of 512 tokens.

    It lies under $WORKBENCH_CACHE, else $XDG_CACHE_HOME/dsv4-workbench, else ~/.cache/dsv4-workbench; the name has a
    digest of all that it is made from, and it appears by one rename, whole.
    """
    named = os.environ.get("WORKBENCH_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = (Path(named) if named else base / "dsv4-workbench") / "models"
    target = root / f"tiny-{_digest()}"
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=root, prefix=".tiny-"))
    try:
        config = Config.load("tiny")
        write(made, config, random_tensors(config, SEED), "native")
        shutil.copyfile(text.TINY, made / text.FILE)
        made.rename(target)
    except OSError:
        # Somebody else was faster; anything else is still an error.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _digest() -> str:
    """Of the configuration, the tokenizer, the seed, and the code that draws and writes."""
    here = Path(__file__).parent
    sources = [RELEASES / "tiny.json", text.TINY, *sorted((here / "checkpoint").glob("*.py"))]
    data = b"".join(file.read_bytes() for file in sources) + str(SEED).encode()
    return hashlib.sha256(data).hexdigest()[:12]
