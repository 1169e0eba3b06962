"""`python -m tests.emulator.hw.capture FILE`, on a machine with an H100 or H200: every case and every CuTe DSL kernel.

Writes the words to FILE (committed as tests/data/hopper_programs.npz) and says what the emulator does differently. The
archive holds one JSON member `index` (the machine; per case: digest of text and inputs, error, printed text; per DSL
kernel: digest of its output), one uint8 array per output (`<case>/<number>`) and the first bytes of what the kernels
made (`dsl/<name>`). `pytest --hw tests/emulator/hw` repeats the comparison on a GPU, without --hw from the archive.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.hw import cases, maps
from tests.emulator.hw.case import Case, Result, differences, emulate
from tests.emulator.hw.gpu import Gpu, results

KEPT = 4096
"""Bytes of a DSL kernel's output that the archive holds, besides the digest of all."""


def digest(words: np.ndarray) -> str:
    """Of the bytes of an output."""
    return hashlib.sha256(words.tobytes()).hexdigest()


def machine() -> str:
    """The GPU and its driver."""
    driver = Gpu().driver
    name = driver.cuDeviceGetName(128, driver.cuDeviceGet(0)[1])[1].split(b"\0")[0].decode()
    return f"{name}, CUDA {driver.cuDriverGetVersion()[1]}"


def dsl_words() -> dict[str, np.ndarray]:
    """Outputs of the CuTe DSL kernels on this GPU, and on the emulator beside it: differences are printed."""
    import backends
    from backends.cache import Cache
    from tests.emulator.hw.dsl import RUNS

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        gpu = backends.get("cuda", "sm_90a", cache=Cache(Path(folder) / "a"))
        emulated = backends.get("emulated", "sm_90a", cache=Cache(Path(folder) / "b"), arithmetic="exact")
        for name, run in RUNS.items():
            try:
                found[name] = run(gpu)
                differ = int((found[name] != run(emulated)).sum())
                print(f"dsl {name}: {found[name].size} bytes, {differ} differ", flush=True)
            except Exception:
                traceback.print_exc()
    return found


def compare(case: Case, words: Result) -> list[str]:
    """What the emulator does differently from these words, over all policies."""
    found = []
    for policy in case.policies:
        found += [f"{line} ({policy})" for line in differences(case, words, emulate(case, policy=policy, seed=1))]
    return found


def main(file: str) -> None:
    """Capture everything."""
    every = [*cases.EQUAL, *maps.ODDITIES, *(c for c, _ in cases.REFUSED)]
    index: dict[str, Any] = {"machine": machine(), "cases": {}, "dsl": {}}
    arrays: dict[str, np.ndarray] = {}
    for name, result in results(every).items():
        case = cases.by_name(name)
        index["cases"][name] = {"digest": case.digest, "error": result.error, "printed": result.printed}
        arrays |= {f"{name}/{k}": out for k, out in enumerate(result.outputs)}
        if result.error or case not in cases.EQUAL:
            print(f"{name}: {result.error or 'ran'}", flush=True)
    for case in cases.EQUAL:
        held = index["cases"].get(case.name)
        if held is not None:
            outputs = [arrays[n] for n in sorted(arrays) if n.rsplit("/", 1)[0] == case.name]
            print(
                "\n".join(compare(case, Result(outputs, held["printed"], held["error"])) or [f"{case.name}: equal"]),
                flush=True,
            )
    try:
        for name, words in dsl_words().items():
            index["dsl"][name] = digest(words)
            arrays[f"dsl/{name}"] = words[:KEPT]
    except ImportError as missing:
        print(f"no CuTe DSL kernels: {missing}")
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(file, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
