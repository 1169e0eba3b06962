"""A functional emulator of NVIDIA GPUs that executes PTX on a CPU: `run` is the door, `parse` makes its input."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.machine.launch import Launch, run, translate
    from emulator.machine.schedule import Schedule
    from emulator.ptx import parse

__all__ = ["Launch", "Schedule", "parse", "run", "translate"]

# Loaded on first use: a layer of the package can be imported without the layers above it.
_HOMES = {
    "Launch": "emulator.machine.launch",
    "Schedule": "emulator.machine.schedule",
    "parse": "emulator.ptx",
    "run": "emulator.machine.launch",
    "translate": "emulator.machine.launch",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'emulator' has no attribute {name!r}")
