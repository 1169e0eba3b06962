"""A warp that runs native code: it enters the kernel at a block and is answered where its lanes go next."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from emulator.builders.lanes import FULL
from emulator.builders.llvm_values import DIVERGE, LANES, STATE, STOP, YIELD, Kept
from emulator.errors import EmulatorError
from emulator.isa.warplike import ballot
from emulator.machine.native.calls import Context, aligned, view
from emulator.machine.native.cta import address_of
from emulator.machine.warp import Warp
from emulator.ptx.types import TYPES

if TYPE_CHECKING:
    from emulator.machine.cta import Cta

_WORD = {name: offset // 8 for name, offset in STATE.items()}
_LANES, _WHOLE, _LIMIT, _BUDGET = (_WORD[name] for name in ("lanes", "whole", "limit", "budget"))
_INSTRUCTIONS, _SLEPT = _WORD["instructions"], _WORD["slept"]
_TARGET, _TAKEN, _FOLLOWING = (_WORD[name] for name in ("target", "taken", "following"))
_STATE_BYTES = 256
_BITS = np.arange(LANES, dtype=np.uint32)
_ALL = 0xFFFFFFFF


@lru_cache(4096)
def lanes_of(word: int) -> np.ndarray:
    """A 32-bit word as a mask, lane 0 lowest. Not to be written to."""
    if word == _ALL:
        return FULL
    mask = (np.uint32(word) >> _BITS & np.uint32(1)).astype(np.bool_)
    mask.flags.writeable = False
    return mask


class Lanes:
    """Lanes at one block, as a word. Blocked ones are passed over until something has happened."""

    __slots__ = ("block", "word", "blocked")

    def __init__(self, block: int, word: int) -> None:
        self.block = block
        self.word = word
        self.blocked = False


@lru_cache(maxsize=4096)
def _halves_of(starts: tuple[int, ...]) -> np.ndarray:
    """Both 64-byte rows of 32-bit registers at these offsets of the register file."""
    first = np.array(starts) // 64
    return np.stack([first, first + 1], 1).ravel()


class NativeWarp(Warp):
    """State of one warp of the native engine. Masks are words here; handlers see them as arrays: `live`, and `mask`,
    the lanes of the code that runs now."""

    def __init__(self, cta: Cta, index: int, live: np.ndarray) -> None:
        context: Context = cta.cluster.grid.context
        constants = context.constants
        first = _STATE_BYTES + constants.nbytes
        buffer = aligned(first + context.image.register_bytes)
        self._registers = buffer[first:]
        self._state = buffer[:_STATE_BYTES].view(np.int64).data
        super().__init__(cta, index, live)
        self._context = context
        self._call = context.entry
        self._place: int = address_of(buffer)
        self._running = self._word
        self._apart: list[Lanes] = []
        constants.fill(self, buffer[_STATE_BYTES:first])
        for word, address in context.pointers(cta):
            self._state[word] = address
        self._state[_WORD["registers"]] = self._place + first
        self._state[_WORD["constants"]] = self._place + _STATE_BYTES
        self._state[_WORD["quarter"]] = 32 * (index % 4)

    # ---------------------------------------------------------------- what the base class keeps elsewhere
    @property
    def live(self) -> np.ndarray:
        """The lanes that have not ended."""
        return lanes_of(self._word)

    @live.setter
    def live(self, value: np.ndarray) -> None:
        self._word = ballot(value)

    @property
    def mask(self) -> np.ndarray:
        """The lanes of the code that runs now."""
        return lanes_of(self._running)

    @property
    def slept(self) -> int:
        """Nanoseconds that the warp has slept."""
        return self._state[_SLEPT]

    @slept.setter
    def slept(self, value: int) -> None:
        self._state[_SLEPT] = value

    @property
    def yielding(self) -> bool:
        """The warp wants others to run: native code returns at the end of its block."""
        return self._yielding

    @yielding.setter
    def yielding(self, value: bool) -> None:
        self._yielding = value
        if value:
            self._state[_BUDGET] = 1

    def get_register(self, slot: int) -> np.ndarray:
        """The raw lanes of a register as it is in the register file."""
        kind = self.program.function.register_types[slot]
        raw = self._register(slot)
        if kind == "pred":
            return lanes_of(int(raw.view(np.uint32)[0]))
        if slot in self._context.image.paired:
            return raw.view(np.uint32).reshape(2, LANES).T.copy().view(np.uint64)[:, 0]
        return raw

    def set_register(self, slot: int, lanes: np.ndarray) -> None:
        """Write all lanes of a register."""
        if self.program.function.register_types[slot] == "pred":
            self._register(slot).view(np.uint32)[0] = ballot(lanes)
        elif slot in self._context.image.paired:
            words = self._register(slot).view(np.uint32).reshape(2, LANES)
            words[...] = np.ascontiguousarray(lanes).view(np.uint32).reshape(LANES, 2).T
        else:
            self._register(slot)[...] = lanes

    def get_registers(self, slots: tuple[int, ...]) -> np.ndarray:
        """Several 32-bit registers: uint32 [n, 32]."""
        return self._halves()[self._rows(slots)].reshape(-1, LANES)

    def set_registers(self, slots: tuple[int, ...], values: np.ndarray) -> None:
        """Write several 32-bit registers, uint32 [n, 32]."""
        self._halves()[self._rows(slots)] = values.reshape(-1, LANES // 2)

    def _halves(self) -> np.ndarray:
        """The register file as rows of 16 words: registers begin at multiples of 64 bytes."""
        return self._registers.view(np.uint32).reshape(-1, LANES // 2)

    def _rows(self, slots: tuple[int, ...]) -> np.ndarray:
        starts = self._context.image.register_at
        return _halves_of(tuple(starts[slot] for slot in slots))

    def _register(self, slot: int) -> np.ndarray:
        kind = self.program.function.register_types[slot]
        start = self._context.image.register_at[slot]
        if kind == "pred":
            return self._registers[start : start + 4]
        raw = self._registers[start : start + LANES * TYPES[kind].bytes]
        if kind == "b128":
            return raw.view(np.uint64).reshape(2, LANES)
        return raw.view(f"u{TYPES[kind].bytes}")

    # ---------------------------------------------------------------- execution
    def run(self, budget: int) -> bool:
        """Execute up to `budget` blocks; returns whether anything was executed."""
        self.yielding = False
        before = self.instructions
        self._context.warp = self
        self._context.find_regions(self.cluster.grid)
        try:
            alive, left = True, budget
            while alive and left > 0 and not self.done and not self._yielding:
                alive, left = self._run_whole(left) if self.groups is None else self._run_group(left)
        except EmulatorError as error:
            raise error.at(self.where()) from None
        except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError) as wrong:
            wrong.add_note(f"inside the emulator, at {self.where()}")
            raise
        finally:
            self.instructions = self._state[_INSTRUCTIONS]
        return self.instructions != before

    def _enter(self, block: int, word: int, limit: int, budget: int) -> int:
        """Run native code from `block` on; raises what a handler raised."""
        self._running = word
        state = self._state
        state[_LANES], state[_LIMIT], state[_BUDGET] = word, limit, budget
        state[_WHOLE] = self.groups is None
        answer: int = self._call(self._place, block)
        if answer != STOP:
            self.waiting = ""
            return answer
        failure = self._context.failure
        if failure is not None:
            self._context.failure = None
            raise failure
        return answer

    def _run_whole(self, budget: int) -> tuple[bool, int]:
        """All live lanes together, until they wait, end, diverge or have used the budget: (may go on, budget left)."""
        answer = self._enter(self.block, self._word, self.program.exit_block, budget)
        left = self._state[_BUDGET]
        if answer == STOP:
            self.block = self._context.blocked
            return False, left
        if answer == YIELD:
            self.block = self._state[_TARGET]
            self.done = self.block >= self.program.exit_block
            return True, left
        self._split(answer, [], self._word)
        return True, left - 1

    def _run_group(self, budget: int) -> tuple[bool, int]:
        """The group at the lowest block, as long as it stays the lowest."""
        groups = self._apart
        ready = [g for g in groups if not g.blocked]
        if not ready:
            self._unblock()
            return False, budget
        group = min(ready, key=_block)
        others = [g for g in groups if g is not group]
        answer = self._enter(group.block, group.word, min(others, key=_block).block, budget)
        left = self._state[_BUDGET]
        if answer == STOP:
            if left != budget:
                self._unblock()
            group.block, group.blocked = self._context.blocked, True
            return True, left - 1
        if answer == YIELD:
            target = self._state[_TARGET]
            self._place_lanes(others, target, group.word)
            self._settle_lanes(others)
            left -= target >= self.program.exit_block
        else:
            self._split(answer, others, group.word)
            left -= 1
        self._unblock()
        return True, left

    def _unblock(self) -> None:
        for g in self._apart:
            g.blocked = False

    def _place_lanes(self, groups: list[Lanes], block: int, word: int) -> None:
        """Lanes arrive at a block; these at the exit end."""
        if block >= self.program.exit_block:
            self._word &= ~word
            return
        for g in groups:
            if g.block == block:
                g.word |= word
                return
        groups.append(Lanes(block, word))

    def _settle_lanes(self, groups: list[Lanes]) -> None:
        """One group left means that the warp has reconverged; none, that it has ended."""
        self._apart = groups
        if len(groups) > 1:
            self.groups = groups  # type: ignore[assignment]
            return
        self.groups, self._apart = None, []
        self.done = not groups
        if groups:
            self.block, self._word = groups[0].block, groups[0].word

    def _split(self, answer: int, others: list[Lanes], word: int) -> None:
        """Lanes of `word` go to different blocks."""
        state = self._state
        target = state[_TARGET]
        if answer == DIVERGE:
            taken = state[_TAKEN]
            self._place_lanes(others, target, taken)
            self._place_lanes(others, state[_FOLLOWING], word & ~taken)
        else:
            kept, at, targets, following = self._context.image.jumps[target]
            taken_lanes, index = view(self._context.scratch, Kept("pred", at)), view(self._context.scratch, kept)
            self.at = self.program.starts[target] + self.program.lengths[target] - 1
            self._check_index(taken_lanes, index, len(targets))
            to = np.where(taken_lanes, np.array(targets)[np.where(taken_lanes, index, 0)], following)
            for block in np.unique(to[lanes_of(word)]).tolist():
                self._place_lanes(others, block, ballot(to == block) & word)
        self._settle_lanes(others)


def _block(group: Lanes) -> int:
    return group.block
