"""Runs hand-written kernels with checkers."""

from __future__ import annotations

from typing import Any

import numpy as np

import emulator
from emulator.errors import EmulatorError
from emulator.memory.globals import GlobalMemory
from emulator.watch import Finding, checkers, failed, findings

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<90>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .b128 %q<4>;"
)


class Checked:
    """A launch with inputs (arrays), and outputs of uint32 words that nobody has written: `outputs` maps names to
    numbers of words. All are parameters in this order: %rd1, %rd2, … hold their addresses."""

    def __init__(self, tools: str, outputs: dict[str, int] | None = None, **inputs: np.ndarray) -> None:
        self.memory = GlobalMemory()
        self.checkers = checkers(tools.split())
        self.names = [*inputs, *(outputs or {})]
        self.inputs = inputs
        self.addresses = []
        for name, array in inputs.items():
            region = self.memory.register(
                array.ctypes.data, _span(array), name, False, array.shape, str(array.dtype), 0, _strides(array)
            )
            self.addresses.append(region.address)
        self.outputs = {}
        for name, words in (outputs or {}).items():
            region = self.memory.allocate(4 * words, name)
            region.shape, region.dtype = (words,), "uint32"
            self.outputs[name] = region.views[4]
            self.addresses.append(region.address)
        self.error: EmulatorError | None = None

    def run(
        self, body: str, *, declarations: str = "", grid: int = 1, block: int = 32, **settings: Any
    ) -> list[Finding]:
        """Run a body; gives all findings so far. Errors of the machine are kept in `error` and told to the checkers."""
        declared = ", ".join(f".param .u64 p_{name}" for name in self.names)
        loads = "".join(f"ld.param.u64 %rd{k + 1}, [p_{name}];\n" for k, name in enumerate(self.names))
        text = f"{HEADER}{declarations}\n.visible .entry kernel({declared})\n{{\n{REGISTERS}\n{loads}{body}\nret;\n}}\n"
        values = [address.to_bytes(8, "little") for address in self.addresses]
        try:
            emulator.run(
                emulator.parse(text), "kernel", (grid, 1, 1), (block, 1, 1), values, self.memory,
                listeners=self.checkers, **settings,
            )  # fmt: skip
        except EmulatorError as error:
            self.error = error
            failed(self.checkers, error)
        return findings(self.checkers)


def _span(array: np.ndarray) -> int:
    return sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize


def _strides(array: np.ndarray) -> tuple[int, ...]:
    return () if array.flags.c_contiguous else array.strides


def kinds(found: list[Finding]) -> list[tuple[str, int]]:
    """(kind, count) of every finding."""
    return [(finding.kind, finding.count) for finding in found]
