"""The Python side of calls from native code: one small function per effect, made when first reached.

Operands and results of an effect lie in a scratch area; the functions see them as NumPy views. One context serves one
launch at a time; a warp is the context's current one while its native code runs.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.builders.llvm_values import ALIGN, LANES, LAUNCH, STATE, Effect, Kept, Uniform
from emulator.builders.numpy_block import DTYPES, WIDTH
from emulator.machine.native.constants import Constants
from emulator.machine.native.cta import NativeCta, address_of
from emulator.machine.native.image import Image
from emulator.machine.native.runtime import REGION_WORDS

if TYPE_CHECKING:
    from emulator.machine.cta import Cta
    from emulator.machine.grid import Grid

ENTRY = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)
GO_ON, STOP = 0, 1


def aligned(nbytes: int) -> np.ndarray:
    """Zero bytes at a multiple of 64."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -address_of(raw) % 64
    return raw[start : start + nbytes]


def view(buffer: np.ndarray, kept: Kept) -> np.ndarray:
    """The 32 lanes of a value in a buffer; predicates are bytes."""
    size = LANES * (1 if kept.type == "pred" else WIDTH[kept.type] // 8)
    return buffer[kept.offset : kept.offset + size].view(DTYPES[kept.type])


def uniform(value: Uniform) -> np.ndarray:
    """32 equal lanes, not to be written to."""
    raw = np.full(LANES, value.bits, f"u{max(1, WIDTH[value.type] // 8)}")
    lanes = raw.astype(np.bool_) if value.type == "pred" else raw.view(DTYPES[value.type])
    lanes.flags.writeable = False
    return lanes


class Context:
    """Scratch area and callback of one launch. `warp` is running; `failure` is what a handler raised; `blocked` is the
    block of the handler that made the warp wait."""

    def __init__(self, image: Image, entry: int, warp_type: type) -> None:
        self.image = image
        self.warp_type = warp_type
        self.entry = ENTRY(entry)
        self.scratch = aligned(image.scratch_bytes)
        self._scratch_address: int = address_of(self.scratch)
        self.constants = Constants({}, {})
        self.warp: Any = None
        self.failure: BaseException | None = None
        self.rows: dict[tuple[int, ...], np.ndarray] = {}
        self._version = -1
        self._regions = array("q")
        self.blocked = -1
        self._calls: list[Callable[[Any], int]] = [self._first(n) for n in range(len(image.effects))]
        self.callback = CALLBACK(self._answer)
        self.callback_address = ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def open(self, spaces: Mapping[str, tuple[str, int]]) -> None:
        """A launch begins; `spaces` says where the kernel's variables are."""
        self.constants = Constants(self.image.constants, spaces)

    def close(self) -> None:
        """The launch has ended."""
        self.warp = self.failure = None
        self._version = -1

    def pointers(self, cta: Cta) -> list[tuple[int, int]]:
        """Words of the state of every warp of a CTA: (word, value)."""
        native = cta.native
        named = (
            ("scratch", self._scratch_address),
            ("callback", self.callback_address),
            ("counts", cta.counts.buffer_info()[0]),
            ("cta", 0 if native is None else native.address),
            ("launch", cta.cluster.grid.words.buffer_info()[0]),
        )
        return [(STATE[name] // 8, value) for name, value in named]

    def cta(self, cta: Cta) -> NativeCta:
        """What native code sees of a CTA."""
        return NativeCta(cta)

    def find_regions(self, grid: Grid) -> None:
        """Tell native code the registered regions, if they have changed. Writable ones that overlap a read-only one
        are left to Python."""
        memory = grid.memory
        if self._version == memory.version:
            return
        self._version = memory.version
        closed = [r for r in memory.regions if not r.writable]
        table: list[int] = []
        for r in memory.regions:
            open_to_all = r.writable and not any(r.address < c.end and c.address < r.end for c in closed)
            table += (r.address, r.end, int(open_to_all))
        self._regions = array("q", table or (0, 0, 0))
        grid.words[LAUNCH["regions"] // 8] = self._regions.buffer_info()[0]
        grid.words[LAUNCH["region_count"] // 8] = len(table) // REGION_WORDS

    def _answer(self, number: int) -> int:
        try:
            return self._calls[number](self.warp)
        except BaseException as failure:  # it travels through native code, and is raised again behind it
            self.failure = failure
            return STOP

    def _first(self, number: int) -> Callable[[Any], int]:
        def call(warp: Any) -> int:
            made = self._make(self.image.effects[number])
            self._calls[number] = made
            return made(warp)

        return call

    def _make(self, effect: Effect) -> Callable[[Any], int]:
        """The function of an effect, with its views bound."""
        handler, index, block, blocking = effect.handler, effect.index, effect.block, effect.blocking
        arguments = tuple(self._argument(a) for a in effect.arguments)
        keep = self._keeper(effect)
        if effect.pure:

            def call(warp: Any) -> int:
                keep(handler(*arguments))
                return GO_ON

            return call
        guard = None if effect.guard is None else view(self.scratch, Kept("pred", effect.guard))

        def ask(warp: Any) -> int:
            warp.at = index
            answer = handler(warp, warp.mask if guard is None else guard, *arguments)
            if answer is None and blocking:
                self.blocked = block
                return STOP
            if keep is not None:
                keep(answer)
            return GO_ON

        return ask

    def _keeper(self, effect: Effect) -> Any:
        """What puts the results of a handler where native code reads them; None if there are none."""
        kept = effect.results
        if not kept:
            return None
        places = [view(self.scratch, k) for k in kept]
        if effect.single:
            (place,) = places

            def put(answer: Any) -> None:
                place[:] = answer

            return put
        size = LANES * WIDTH[kept[0].type] // 8
        if len(kept) > 2 and len({k.type for k in kept}) == 1 and size % ALIGN == 0:
            whole = self.scratch[kept[0].offset : kept[0].offset + size * len(kept)]
            rows: np.ndarray = whole.view(DTYPES[kept[0].type]).reshape(len(kept), LANES)

            def put_rows(answer: Any) -> None:
                rows[:] = answer

            return put_rows

        def put_each(answer: Any) -> None:
            for place, lanes in zip(places, answer, strict=True):
                place[:] = lanes

        return put_each

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Kept):
            return view(self.scratch, argument)
        if isinstance(argument, Uniform):
            return uniform(argument)
        if isinstance(argument, tuple) and any(isinstance(a, (Kept, Uniform)) for a in argument):
            return tuple(self._argument(a) for a in argument)
        return argument
