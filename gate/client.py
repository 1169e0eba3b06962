"""The parent's side of a worker process (`gate.server`): start it, hand it jobs, read what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

# One thread per case: the cores are shared out by -j.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LOG_LINES = 8


class WorkerDied(Exception):
    """The worker ended by itself; the message holds the last lines of its log."""


class Worker:
    """One warm worker process for one kind of backend. Its own session: Ctrl-C reaches only the parent.

    `module` is what it runs, with the root of the tree and `on` as arguments.
    """

    def __init__(self, root: Path, on: str, log: Path, module: str = "gate.server") -> None:
        self.on = on
        self.ready = False
        self.running: dict[str, Any] = {}
        self._log = log
        self._rest = b""
        here = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(dict.fromkeys(p for p in (str(root), here, os.environ.get("PYTHONPATH", "")) if p))
        environment = os.environ | dict.fromkeys(_THREADS, "1") | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore::DeprecationWarning", "-m", module, str(root), on],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=root,
                env=environment,
                start_new_session=True,
            )

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is news."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self, job: Any) -> None:
        """Begin a case: a dataclass with a `label` and fields that JSON has. A worker that is gone is noticed by the
        next `read`."""
        self.running[job.label] = job
        self._send(vars(job))

    def read(self) -> list[dict[str, Any]]:
        """What it has reported; blocks until there is something.

        Raises:
            WorkerDied: when it has ended.
        """
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            self._process.wait()
            code = self._process.returncode
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
            raise WorkerDied("\n".join([f"the worker process ended ({how})", *lines]))
        *lines_, self._rest = (self._rest + data).split(b"\n")
        events = [json.loads(line) for line in lines_ if line]
        for event in events:
            self.ready = self.ready or event["event"] == "ready"
            if "id" in event:
                event["job"] = self.running[event["id"]]
            if event["event"] in ("result", "died"):
                del self.running[event["id"]]
        return events

    def stop(self, patience_s: float = 5.0) -> None:
        """End it and everything that it runs: by itself, or after `patience_s` by force."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _send(self, command: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(command, ensure_ascii=False).encode() + b"\n")
            self._process.stdin.flush()
