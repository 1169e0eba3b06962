"""Kernels of `scale` with one planted fault each."""

from __future__ import annotations

from kernels.scale import AFTER, BEFORE

_NAMES = [*BEFORE, *AFTER, "none", "unwritten", "does_not_compile", "compiles_always"]
MUTANTS = {name: type(name, (), {"fault": name}) for name in _NAMES}
