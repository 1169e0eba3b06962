"""Where the variables of a kernel live: shared offsets, local offsets, parameter and global addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.errors import LaunchError
from emulator.memory.globals import GlobalMemory
from emulator.memory.spaces import SHARED_RESERVED
from emulator.ptx.module import Function, Module, Variable

VARIABLE_CAPACITY = 1 << 31
"""Largest variable of a module: a limit of the emulator, which gives every byte a value before the launch."""

DYNAMIC_ALIGN = 1024
"""Kernels that swizzle by 128 bytes assume that dynamic shared memory starts at a multiple of 1024."""


@dataclass
class Layout:
    """Symbol → (space, offset or address). Shared offsets are inside the CTA; local and frame offsets inside a lane."""

    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    static_end: int = SHARED_RESERVED
    local_bytes: int = 0

    def space_of(self, name: str) -> str | None:
        """The space of a symbol, or None if there is none of that name."""
        return self.places[name][0] if name in self.places else None


def align(offset: int, to: int) -> int:
    """`offset` rounded up to a multiple of `to`."""
    return -(-offset // to) * to


def lay_out(module: Module, function: Function) -> Layout:
    """Place shared, local and parameter variables; global ones are placed by `place_globals`."""
    layout = Layout()
    shared = [v for v in (*module.variables, *function.variables) if v.space == "shared"]
    for v in shared:
        if v.nbytes:
            offset = align(layout.static_end, v.align)
            layout.places[v.name] = ("shared", offset)
            layout.static_end = offset + v.nbytes
    dynamic = align(layout.static_end, DYNAMIC_ALIGN if layout.static_end > SHARED_RESERVED else SHARED_RESERVED)
    for v in shared:
        if not v.nbytes:
            layout.places[v.name] = ("shared", dynamic)
    for v in function.variables:
        if v.space in ("local", "param"):
            offset = align(layout.local_bytes, max(v.align, 1))
            layout.places[v.name] = (v.space, offset)
            layout.local_bytes = offset + v.nbytes
    layout.local_bytes = align(layout.local_bytes, 16)
    for p in function.parameters:
        layout.places[p.name] = ("parameter", p.offset)
    for v in module.variables:
        if v.space in ("global", "const"):
            layout.places[v.name] = (v.space, 0)
    return layout


def place_globals(module: Module, memory: GlobalMemory) -> dict[str, int]:
    """Allocate the module's global and constant variables with their initial bytes; returns their addresses."""
    return {v.name: _place(v, memory) for v in module.variables if v.space in ("global", "const")}


def _place(variable: Variable, memory: GlobalMemory) -> int:
    if variable.nbytes > VARIABLE_CAPACITY:
        raise LaunchError(f"variable {variable.name}: {variable.nbytes} bytes; at most {VARIABLE_CAPACITY} here")
    region = memory.allocate(max(variable.nbytes, 1), f"{variable.space} variable {variable.name}", fill=0)
    if variable.init:
        memory.view(region.address, len(variable.init), write=True)[:] = memoryview(variable.init)
    return region.address
