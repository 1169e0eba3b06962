"""The model on a CPU: prefill and decode of the tiny configuration on oracles, and the loader against the disk.

Seconds are of one thread. Wall time also holds what other processes take; CPU time does not, so both are printed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from model.checkpoint import load, random_tensors, weights_from, write
from model.config import Config
from model.forward import Model

PROMPT, EARLY, LATE, STEPS = 150, 100, 4000, 50
LIMITS = {"prefill_s": 0.25, "decode_ms": 25.0, "load": 0.6}
BIG = {"hidden_size": 1024, "moe_intermediate_size": 1024, "n_routed_experts": 16}


def main() -> None:
    """Print each figure beside what it should be."""
    torch.set_num_threads(1)
    config = Config.load("tiny")
    model = Model(config, weights_from(config, random_tensors(config)))
    ids = torch.randint(0, config.vocab_size, (LATE + 2 * STEPS,), generator=torch.Generator().manual_seed(7))
    _prefill(model, ids)
    _decode(model, ids)
    with tempfile.TemporaryDirectory(prefix="dsv4-benchmark-") as folder:
        _loading(Path(folder))


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _prefill(model: Model, ids: torch.Tensor) -> None:
    cache = model.new_cache(1, 256)
    for _ in range(2):  # the first one warms up
        sequence = cache.open()
        wall, cpu = _timed(lambda s=sequence: model.prefill(cache, [s], [ids[:PROMPT]]))  # type: ignore[misc]
        cache.free(sequence)
    print(f"prefill of {PROMPT} tokens  {wall:.3f} s, {cpu:.3f} s CPU  (limit {LIMITS['prefill_s']} s)")


def _decode(model: Model, ids: torch.Tensor) -> None:
    for length in (EARLY, LATE):
        cache = model.new_cache(1, LATE + 2 * STEPS)
        sequence = cache.open()
        model.prefill(cache, [sequence], [ids[:length]], chunk=512)
        steps = [ids[None, length + i : length + i + 1] for i in range(STEPS)]

        def run(cache=cache, sequence=sequence, steps=steps) -> None:  # type: ignore[no-untyped-def]
            for token in steps:
                model.decode(cache, [sequence], token)

        wall, cpu = (1e3 * s / STEPS for s in _timed(run))
        print(f"decode at {length} tokens  {wall:.1f} ms, {cpu:.1f} ms CPU a token  (limit {LIMITS['decode_ms']} ms)")


def _loading(folder: Path) -> None:
    """Read the files cold, load them cold, read them cold again: what lies below the system caches too."""
    config = replace(Config.load("tiny"), **BIG)  # type: ignore[arg-type]
    write(folder, config, random_tensors(config), "bf16", shard_bytes=200_000_000)
    files = sorted(folder.glob("*.safetensors"))
    size = sum(f.stat().st_size for f in files)
    seconds: dict[str, list[float]] = {"read": [], "load": []}
    for what in ("read", "load", "read", "load"):
        _forget(files)
        run = (lambda: [_read(f) for f in files]) if what == "read" else (lambda: load(folder, config))
        seconds[what].append(_timed(run)[0])
    read, loaded = min(seconds["read"]), min(seconds["load"])
    print(
        f"loading {size / 1e6:.0f} MB  {size / loaded / 1e9:.2f} GB/s, plain reads {size / read / 1e9:.2f} GB/s: "
        f"{read / loaded:.0%}  (limit {LIMITS['load']:.0%})"
    )


def _forget(files: list[Path]) -> None:
    """Drop files from the page cache."""
    for file in files:
        with open(file, "rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(file: Path) -> None:
    buffer = bytearray(16 << 20)
    with open(file, "rb", buffering=0) as handle:
        while handle.readinto(buffer):
            pass
