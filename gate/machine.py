"""What this machine is, found without importing torch or cutlass."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gate.result import Machine

_GPU_NODE = Path("/dev/nvidiactl")
_QUERY = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
TOOLS = {"cutlass-dsl": "nvidia-cutlass-dsl", "torch": "torch", "numpy": "numpy"}


@dataclass(frozen=True)
class Gpu:
    """One GPU; `arch` is the name that gates.yaml uses (`sm90`), or `sm89` and the like for others."""

    name: str
    arch: str
    driver: str


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs that the driver shows; empty without a driver. Asks nvidia-smi only where a device node exists."""
    if not _GPU_NODE.exists():
        return ()
    try:
        answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = []
    for line in answer.splitlines():
        name, capability, driver = (part.strip() for part in line.split(","))
        found.append(Gpu(name, "sm" + capability.replace(".", ""), driver))
    return tuple(found)


def has_gpu(arch: str) -> bool:
    """Whether a GPU of exactly this architecture is here."""
    return any(gpu.arch == arch for gpu in gpus())


def resolve(arch: str, on: str) -> tuple[str | None, str]:
    """Where `arch` runs under `--on`: (`emulated` or `cuda`, `""`), or (None, the reason why it cannot)."""
    if on == "emulator":
        return "emulated", ""
    if has_gpu(arch):
        return "cuda", ""
    if on == "auto":
        return "emulated", ""
    here = ", ".join(f"{gpu.arch} ({gpu.name})" for gpu in gpus())
    why = f"this GPU is {here}" if here else "this machine has no GPU"
    return None, f"arch {arch} on gpu: {why}. Use --on emulator."


def describe() -> Machine:
    """The machine, for `result.json`."""
    found = gpus()
    return Machine(
        cpu=_cpu_name(),
        cores=cores(),
        gpus=[f"{gpu.name} ({gpu.arch})" for gpu in found],
        driver=found[0].driver if found else None,
    )


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the tools whose change makes a result stale; absent ones are left out."""
    found = {"python": platform.python_version()}
    for label, package in TOOLS.items():
        try:
            found[label] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
