"""The cache on disk: hits, damage, concurrent builders, killed builders."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from backends.cache import Cache, default_root

DIGEST = "ab" * 32


def build(folder: Path) -> dict[str, object]:
    (folder / "kernel.o").write_bytes(b"object" * 100)
    (folder / "kernel.ptx").write_text("ptx")
    return {"inputs": {"arch": "sm_100a"}}


def refuse(folder: Path) -> dict[str, object]:
    raise AssertionError("must not build")


def test_first_get_builds_and_second_does_not(tmp_path):
    cache = Cache(tmp_path)
    assert cache.find(DIGEST) is None
    assert cache.get(DIGEST, build) == (tmp_path / "kernels" / DIGEST, True)
    assert cache.get(DIGEST, refuse) == (tmp_path / "kernels" / DIGEST, False)
    says = json.loads((tmp_path / "kernels" / DIGEST / "key.json").read_text())
    assert says["inputs"] == {"arch": "sm_100a"} and says["files"]["kernel.o"]["bytes"] == 600
    assert list((tmp_path / "building").iterdir()) == []


DAMAGES = {
    "truncated object": lambda f: (f / "kernel.o").write_bytes(b"object" * 50),
    "empty object": lambda f: (f / "kernel.o").write_bytes(b""),
    "one bit flipped": lambda f: (f / "kernel.o").write_bytes(b"Object" + b"object" * 99),
    "missing object": lambda f: (f / "kernel.o").unlink(),
    "edited ptx": lambda f: (f / "kernel.ptx").write_text("ptY"),
    "truncated key": lambda f: (f / "key.json").write_text((f / "key.json").read_text()[:40]),
    "empty key": lambda f: (f / "key.json").write_text(""),
    "key of another shape": lambda f: (f / "key.json").write_text("[1, 2]"),
    "key without files": lambda f: (f / "key.json").write_text('{"files": {}}'),
    "missing key": lambda f: (f / "key.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path, damage):
    cache = Cache(tmp_path)
    folder, _ = cache.get(DIGEST, build)
    damage(folder)
    assert cache.find(DIGEST) is None
    assert cache.get(DIGEST, build) == (folder, True)
    assert (folder / "kernel.o").read_bytes() == b"object" * 100
    assert cache.find(DIGEST) == folder
    assert sorted(p.name for p in tmp_path.iterdir()) == ["building", "kernels", "locks"]


def test_a_build_that_raises_leaves_nothing_and_the_next_one_builds(tmp_path):
    cache = Cache(tmp_path)

    def fail(folder: Path) -> dict[str, object]:
        (folder / "kernel.o").write_bytes(b"half")
        raise RuntimeError("the compiler refused")

    with pytest.raises(RuntimeError, match="the compiler refused"):
        cache.get(DIGEST, fail)
    assert list((tmp_path / "building").iterdir()) == [] and cache.find(DIGEST) is None
    assert cache.get(DIGEST, build)[1]


def test_discard_and_clear(tmp_path):
    cache = Cache(tmp_path)
    other = "cd" * 32
    cache.get(DIGEST, build)
    cache.get(other, build)
    cache.discard(DIGEST)
    assert cache.find(DIGEST) is None and cache.find(other)
    cache.clear()
    assert cache.find(other) is None
    Cache(tmp_path / "never made").clear()
    assert not (tmp_path / "never made").exists()
    assert cache.get(other, build)[1]


def test_threads_of_one_process_build_once(tmp_path):
    cache, built = Cache(tmp_path), []

    def slow(folder: Path) -> dict[str, object]:
        built.append(1)
        time.sleep(0.2)
        return build(folder)

    threads = [threading.Thread(target=cache.get, args=(DIGEST, slow)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert built == [1]


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from backends.cache import Cache

def build(folder):
    with open({log!r}, "a") as log:
        log.write("built\\n")
    (folder / "kernel.o").write_bytes(b"half")
    Path({started!r}).touch()
    time.sleep({seconds})
    (folder / "kernel.o").write_bytes(b"object" * 100)
    return {{}}

print(Cache(Path({cache!r})).get({digest!r}, build)[1])
"""


def start(root: Path, tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    code = SCRIPT.format(
        root=str(root),
        log=str(tmp_path / "log"),
        started=str(tmp_path / "started"),
        seconds=seconds,
        cache=str(tmp_path / "cache"),
        digest=DIGEST,
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} did not appear"
        time.sleep(0.01)


def test_processes_build_once(root, tmp_path):
    processes = [start(root, tmp_path, 0.5) for _ in range(3)]
    answers = sorted(p.communicate(timeout=60)[0].strip() for p in processes)
    assert answers == ["False", "False", "True"]
    assert (tmp_path / "log").read_text() == "built\n"


def test_a_killed_builder_does_not_block_the_next(root, tmp_path):
    killed = start(root, tmp_path, 600)
    wait_for(tmp_path / "started")
    waiting = start(root, tmp_path, 0)
    time.sleep(0.3)
    assert waiting.poll() is None, "the second process must wait for the lock"
    os.kill(killed.pid, signal.SIGKILL)
    begin = time.monotonic()
    assert waiting.communicate(timeout=30)[0].strip() == "True"
    assert time.monotonic() - begin < 10
    killed.communicate()
    # What the killed process left lies apart and goes with clear().
    assert Cache(tmp_path / "cache").find(DIGEST)
    assert len(list((tmp_path / "cache" / "building").iterdir())) == 1
    Cache(tmp_path / "cache").clear()
    assert not (tmp_path / "cache" / "building").exists()


def test_a_forked_child_does_not_keep_its_parents_lock(root, tmp_path):
    """A child that is forked during a build and lives on must not hold the lock when the parent is killed."""
    code = SCRIPT.replace(
        "time.sleep({seconds})",
        "import os\n    pid = os.fork()\n    if pid == 0:\n        time.sleep(60)\n        os._exit(0)\n"
        "    Path({child!r}).write_text(str(pid))\n    time.sleep({seconds})",
    ).format(
        root=str(root),
        log=str(tmp_path / "log"),
        started=str(tmp_path / "started"),
        child=str(tmp_path / "child"),
        seconds=600,
        cache=str(tmp_path / "cache"),
        digest=DIGEST,
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    wait_for(tmp_path / "child")
    time.sleep(0.2)
    child = int((tmp_path / "child").read_text())
    parent.kill()
    parent.wait()
    try:
        done = multiprocessing.get_context("spawn").Process(target=Cache(tmp_path / "cache").get, args=(DIGEST, build))
        done.start()
        done.join(timeout=30)
        assert done.exitcode == 0
    finally:
        os.kill(child, signal.SIGKILL)


def test_default_root(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "here"))
    assert default_root() == tmp_path / "here"
    monkeypatch.delenv("WORKBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "dsv4-workbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_root() == tmp_path / "home" / ".cache" / "dsv4-workbench"
