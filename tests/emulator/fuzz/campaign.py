"""`python -m tests.emulator.fuzz.campaign --first 0 --count 10000 [--engine llvm]`: cases in child processes, and what
came of them. A child that dies, or stands still, is reported with the number of its case."""

from __future__ import annotations

import argparse
import json
import re
import resource
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

MEMORY = 6 << 30
"""Bytes of address space of a child."""

PATIENCE = 120
"""Seconds without a sign of life after which a child counts as hanging."""


def child(first: int, count: int, engine: str) -> None:
    """Run cases and print one line of JSON for each, before and after."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from tests.emulator.fuzz import mutate, watch

    for number in range(first, first + count):
        print(json.dumps({"number": number}), flush=True)
        outcome = watch.run(mutate.mutated(number), engine)
        print(json.dumps({"number": number, "kind": outcome.kind, "message": outcome.message}), flush=True)


def results(first: int, count: int, engine: str) -> list[dict[str, Any]]:
    """One record per case; a dead child is started again behind the case that killed it."""
    found: list[dict[str, Any]] = []
    last = first + count
    while first < last:
        command = [sys.executable, "-m", "tests.emulator.fuzz.campaign", "--child", "--engine", engine]
        command += ["--first", str(first), "--count", str(last - first)]
        root = Path(__file__).resolve().parents[3]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, bufsize=1) as process:
            at, why = _follow(process, found)
        if why is None:
            return found
        if at is None:
            raise RuntimeError(f"{why}, and not because of a case")
        found.append({"number": at, "kind": "bug", "message": why})
        first = found[-1]["number"] + 1
    return found


def _follow(process: subprocess.Popen[str], found: list[dict[str, Any]]) -> tuple[int | None, str | None]:
    """Collect a child's records until it ends: (the case it was at, why it did not finish)."""
    at: int | None = None
    assert process.stdout is not None
    while True:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        if not ready:
            process.kill()
            return at, f"no sign of life for {PATIENCE} s"
        line = process.stdout.readline()
        if not line:
            break
        record = json.loads(line)
        at = record["number"]
        if "kind" in record:
            found.append(record)
            at = None
    code = process.wait()
    return at, None if code == 0 else f"the process ended with code {code}"


def gist(message: str) -> str:
    """A report without its numbers: equal for one bug found in several ways."""
    places = re.findall(r'File "[^"]*/(emulator/[^"]+)", line (\d+)', message)
    last = message.strip().splitlines()[-1] if message.strip() else ""
    last = next((x for x in reversed(message.strip().splitlines()) if not x.startswith("inside")), last)
    return (
        f"{places[-1][0]}:{places[-1][1] if places else ''} {re.sub(r'[0-9]+', '#', last)[:150]}"
        if places
        else last[:150]
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--engine", default="numpy", choices=("numpy", "llvm"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.first, chosen.count, chosen.engine)
        return
    found = results(chosen.first, chosen.count, chosen.engine)
    print(Counter(r["kind"] for r in found))
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in found:
        if record["kind"] == "bug":
            groups.setdefault(gist(record["message"]), []).append(record)
    for name, records in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(records):5d}  {name}   e.g. {[r['number'] for r in records[:5]]}")


if __name__ == "__main__":
    main()
