"""A kernel translated for the native engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from emulator.builders.llvm_builder import LlvmBuilder
from emulator.builders.llvm_values import Frame
from emulator.errors import UnknownInstruction, Unsupported
from emulator.machine.native import cache, runtime
from emulator.machine.native.calls import Context
from emulator.machine.native.image import Image, Loaded, assemble, compile_text
from emulator.machine.native.shortcuts import SHORTCUTS
from emulator.machine.native.warp import NativeWarp
from emulator.machine.program import Blocks
from emulator.ptx.module import Module, Vector
from emulator.ptx.registers import registers_of
from emulator.ptx.types import TYPES

WORTH_KEEPING = 0.1
"""Seconds of translation from which on an image goes to disk."""


class NativeProgram(Blocks):
    """A kernel as one native function. Unknown opcodes, modifiers and operand forms are all reported
    (`UnknownInstruction`) before anything runs."""

    def __init__(self, module: Module, entry: str) -> None:
        name = f"{entry}\n{module.source}"
        found: Image | None = cache.find(name)
        super().__init__(module, entry, () if found is None else found.starts)
        if found is None:
            started = time.perf_counter()
            found = self._translate()
            if time.perf_counter() - started > WORTH_KEEPING:
                cache.keep(name, found)
        self.image = found
        self.loaded = Loaded(self.image.code, _runtime())
        self.entry = self.loaded.address("kernel")
        self._free: list[Context] = []

    @contextmanager
    def context(self) -> Iterator[Context]:
        """Scratch area and callback for one launch."""
        context = self._free.pop() if self._free else Context(self.image, self.entry, NativeWarp)
        context.open(self.layout.places)
        try:
            yield context
        finally:
            context.close()
            self._free.append(context)

    def text(self) -> str:
        """The kernel's IR, for reading and debugging."""
        return assemble(self.print(), self.exit_block)

    def print(self) -> Frame:
        """Print all blocks."""
        found: list[Unsupported] = []
        frame = Frame(self.function.register_types, self._paired(), SHORTCUTS)
        for block, own in enumerate(self.own_slots()):
            builder = LlvmBuilder(frame, self.surroundings(block), block, frozenset(own), self.lengths[block])
            builder.open(f"b{block}")
            self.build_block(builder, block, found)
            builder.finish()
        if found:
            raise UnknownInstruction(self.function.name, found)
        return frame

    def _paired(self) -> frozenset[int]:
        """64-bit registers that are made of words, cut into words, or hold two floats more often than anything else."""
        votes: dict[int, int] = {}
        for i in self.function.instructions:
            vectors = i.opcode == "mov.b64" and any(isinstance(o, Vector) for o in i.operands)
            vote = 1 if vectors or i.opcode.endswith(".f32x2") else -1
            for reg in (r for o in i.operands for r in registers_of(o)):
                if TYPES[reg.type].bits == 64:
                    votes[reg.slot] = votes.get(reg.slot, 0) + vote
        return frozenset(slot for slot, total in votes.items() if total > 0)

    def _translate(self) -> Image:
        frame = self.print()
        return Image(
            compile_text(assemble(frame, self.exit_block)),
            tuple(frame.effects),
            frame.jumps,
            frame.constants,
            tuple(frame.register_at),
            frame.register_bytes,
            frame.scratch_bytes,
            frame.paired,
            tuple(self.starts),
        )


@lru_cache(1)
def _runtime() -> bytes:
    """Object code of the runtime."""
    code: bytes | None = cache.find("runtime")
    if code is None:
        code = compile_text(runtime.module(), 2)
        cache.keep("runtime", code)
    return code
