"""Where a run writes: `build/gates/<utc>-<commit>[-dirty]`, with `latest` pointing at the newest."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gate.ledger import FOLDER, LATEST


@dataclass(frozen=True)
class Commit:
    """The state of the working tree: seven digits, or `nogit` outside a repository."""

    short: str
    dirty: bool

    def __str__(self) -> str:
        return self.short + ("-dirty" if self.dirty else "")


def commit(root: Path) -> Commit:
    """Ask git; a tree without git or without a commit is named so."""
    head = _git(root, "rev-parse", "--short=7", "HEAD")
    if head is None:
        return Commit("nogit", False)
    return Commit(head, bool(_git(root, "status", "--porcelain")))


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def utc_now() -> str:
    """`2026-08-25T09:12:04Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_run_folder(root: Path, state: Commit) -> Path:
    """Make the folder of a new run."""
    stem = f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}-{state}"
    for number in range(1, 1000):
        folder = root / FOLDER / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise RuntimeError(f"{root / FOLDER}: a thousand runs in one second")


def point_latest(folder: Path) -> None:
    """Let `latest` name this run, in one step."""
    link = folder.parent / LATEST
    temporary = folder.parent / f".{LATEST}-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(folder.name)
    temporary.replace(link)
