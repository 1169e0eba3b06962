"""The worker: one warm process that has imported torch and the DSL, and forks a process for every case.

    python -m gate.server ROOT ON          ON: emulated, cuda or oracle

It reads jobs as lines of JSON from standard input and writes lines of JSON to its standard output: `ready`, then per
case `step` and one `result` or `died`. End of input ends it: it kills what still runs. A case that outlives its time
limit gets its Python stack written to its log and is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import selectors
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.job import Job

_STACK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


@dataclass
class _Child:
    """A case that runs: its process, the pipe it reports through, and when it has to be done."""

    job: Job
    pid: int
    pipe: int
    deadline: float
    started: float
    rest: bytes = b""
    step: str = "import"
    reported: bool = False
    timed_out: bool = False
    stack_asked: float | None = None


def main(argv: list[str]) -> int:
    """Serve until standard input ends."""
    root, on = Path(argv[1]), argv[2]
    sys.path.insert(0, str(root))
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    _warm_up(on)
    server = _Server(root, out)
    server.send({"event": "ready"})
    server.serve()
    return 0


def _warm_up(on: str) -> None:
    """Import what every case needs. What cannot be imported is said by the cases; here it only goes to the log."""
    import torch

    torch.set_num_threads(1)
    import gate.judge  # noqa: F401

    if on != "emulated":
        # CUDA does not survive a fork once it is initialised, so nothing may touch it here.
        return
    try:
        import backends

        backends.get("emulated", arch="sm_100a")
        import cutlass.cute  # noqa: F401

        from emulator import run  # noqa: F401
    except Exception:
        traceback.print_exc()


class _Server:
    def __init__(self, root: Path, out: Any) -> None:
        self.root = root
        self.out = out
        self.children: dict[int, _Child] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.input = b""
        self.open = True

    def send(self, event: dict[str, Any]) -> None:
        self.out.write(json.dumps(event, ensure_ascii=False) + "\n")
        self.out.flush()

    def serve(self) -> None:
        try:
            while self.open:
                for key, _ in self.selector.select(self._patience()):
                    if key.fd == 0:
                        self._read_jobs()
                    else:
                        self._read_child(self.children[key.fd])
                self._check_time()
        finally:
            for child in self.children.values():
                _kill(child.pid)

    def _patience(self) -> float | None:
        moments = [c.stack_asked + _STACK_SECONDS if c.stack_asked else c.deadline for c in self.children.values()]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _read_jobs(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self.open = False
            return
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self._start(Job(**json.loads(line)))

    def _start(self, job: Job) -> None:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            # a case must not keep the pipes of the server and of other cases open
            self.selector.close()
            os.close(self.out.fileno())
            for other in self.children:
                os.close(other)
            _child(job, self.root, write)
        os.close(write)
        now = time.monotonic()
        self.children[read] = _Child(job, pid, read, now + job.timeout_s, now)
        self.selector.register(read, selectors.EVENT_READ)

    def _read_child(self, child: _Child) -> None:
        data = os.read(child.pipe, 1 << 16)
        if not data:
            self._reap(child)
            return
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            child.step = event.get("step", child.step)
            child.reported = child.reported or event["event"] == "result"
            self.send({**event, "id": child.job.label})

    def _reap(self, child: _Child) -> None:
        self.selector.unregister(child.pipe)
        os.close(child.pipe)
        del self.children[child.pipe]
        _, code = os.waitpid(child.pid, 0)
        _kill_group(child.pid)
        if not child.reported:
            seconds = round(time.monotonic() - child.started, 3)
            how = _how(code)
            died = {"event": "died", "id": child.job.label, "step": child.step, "how": how, "seconds": seconds}
            self.send({**died, "timed_out": child.timed_out})

    def _check_time(self) -> None:
        now = time.monotonic()
        for child in list(self.children.values()):
            if child.stack_asked is None and now >= child.deadline:
                child.timed_out = True
                child.stack_asked = now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGUSR1)
            elif child.stack_asked is not None and now >= child.stack_asked + _STACK_SECONDS:
                _kill(child.pid)


def _kill(pid: int) -> None:
    """End a case and every process that it started."""
    _kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """End what a case started (compilers and the like), which is in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _how(code: int) -> str:
    """`killed by SIGSEGV` or `left with exit code 3`."""
    if os.WIFSIGNALED(code):
        return f"killed by {signal.Signals(os.WTERMSIG(code)).name}"
    return f"left with exit code {os.WEXITSTATUS(code)}"


def _child(job: Job, root: Path, pipe: int) -> None:
    """The forked process: judge the case, report, and leave without any clean-up of the parent's."""
    code = 1
    try:
        os.setpgid(0, 0)
        _die_with_parent()
        log = _redirect(job)
        faulthandler.enable(log)
        faulthandler.register(signal.SIGUSR1, log, all_threads=True)
        out = os.fdopen(pipe, "w", encoding="utf-8")

        def say(event: dict[str, Any]) -> None:
            out.write(json.dumps(event, ensure_ascii=False) + "\n")
            out.flush()

        from gate.artifacts import judge_and_keep

        result = judge_and_keep(job, root, lambda step: say({"event": "step", "step": step}))
        say({"event": "result", "result": result.model_dump(mode="json", exclude_defaults=True)})
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _redirect(job: Job) -> int:
    """Standard output and error of the case go to its log; standard input is empty. Gives the log's descriptor."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "stdout.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return log


def _die_with_parent() -> None:
    """On Linux: a case must not outlive a killed worker."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
