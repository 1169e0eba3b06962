"""A warp: 32 lanes, a register file, and the groups of lanes that have diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.builders.lanes import FULL, LANE, some
from emulator.builders.numpy_builder import BLOCKED
from emulator.errors import EmulatorError, IllegalInstruction, Where
from emulator.events import Issue, Synchronise, WarpId
from emulator.isa.warplike import ballot
from emulator.memory.spaces import SHARED_WINDOW

if TYPE_CHECKING:
    from emulator.machine.cta import Cta

DIVERGED = -5


class Group:
    """Lanes at one block. A blocked group is passed over until something has happened."""

    __slots__ = ("block", "mask", "blocked")

    def __init__(self, block: int, mask: np.ndarray) -> None:
        self.block = block
        self.mask = mask
        self.blocked = False


class Warp:
    """State of one warp. Handlers of `isa/` receive it as their first argument."""

    def __init__(self, cta: Cta, index: int, live: np.ndarray) -> None:
        self.cta = cta
        self.cluster = cta.cluster
        self.memory = cta.cluster.grid.memory
        self.bus = cta.cluster.grid.bus
        self.program = cta.cluster.grid.program
        self.index = index
        self.id = WarpId(cta.coordinates, cta.rank, index)
        self.live = live
        self.block = 0
        self.groups: list[Group] | None = None
        self.current: Group | None = None
        self.done = not some(live)
        self.at = 0
        self.instructions = 0
        self.waiting = ""
        self.waits_for: Any = None
        self.give_up = False
        self.arrived: dict[Any, int] = {}
        self.cluster_arrivals = np.zeros(32, np.int64)
        self.cluster_waits = np.zeros(32, np.int64)
        self.yielding = False
        self.registers = list(self.program.initial_registers)
        self.slept = 0
        self._special: dict[str, np.ndarray] = {}
        self._symbols: dict[str, np.ndarray] = {}
        self.local_base = cta.local_base + index * 32 * self.program.layout.local_bytes
        self.async_groups = AsyncGroups()

    # ---------------------------------------------------------------- execution
    def run(self, budget: int) -> bool:
        """Execute up to `budget` blocks; returns whether anything was executed."""
        self.yielding = False
        before = self.instructions
        try:
            for _ in range(budget):
                alive = self._step_whole() if self.groups is None else self._step_group()
                if not alive or self.done or self.yielding:
                    break
        except EmulatorError as error:
            raise error.at(self.where()) from None
        except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError) as wrong:
            wrong.add_note(f"inside the emulator, at {self.where()}")
            raise
        return self.instructions != before

    def _execute(self, block: int, mask: np.ndarray, whole: bool) -> int:
        program: Any = self.program
        if whole:
            function = program.full[block] or program.compile(block, False)
        else:
            function = program.part[block] or program.compile(block, True)
        result = function(self, self.registers, mask)
        if result != BLOCKED:
            self.instructions += program.lengths[block]
            self.cta.counts[block] += 1
            self.waiting = ""
        return result

    def _step_whole(self) -> bool:
        block = self.block
        following = self._execute(block, self.live, self.live is FULL)
        if following >= 0:
            self.block = following
            if following >= self.program.exit_block:
                self.done = True
            return True
        return following != BLOCKED

    def _step_group(self) -> bool:
        groups = self.groups or []
        ready = [g for g in groups if not g.blocked]
        if not ready:
            for g in groups:
                g.blocked = False
            return False
        group = min(ready, key=lambda g: g.block)
        self.current = group
        following = self._execute(group.block, group.mask, False)
        if following == BLOCKED:
            group.blocked = True
            return True
        for g in self.groups or []:
            g.blocked = False
        if following != DIVERGED:
            self._move(group, following)
        return True

    def _move(self, group: Group, block: int) -> None:
        groups = self.groups or []
        groups.remove(group)
        if block >= self.program.exit_block:
            self.live = self.live & ~group.mask
        else:
            self._join(groups, block, group.mask)
        self._settle(groups)

    @staticmethod
    def _join(groups: list[Group], block: int, mask: np.ndarray) -> None:
        for g in groups:
            if g.block == block:
                g.mask = g.mask | mask
                return
        groups.append(Group(block, mask))

    def _settle(self, groups: list[Group]) -> None:
        """One group left means that the warp has reconverged; none, that it has ended."""
        self.current = None
        if not groups:
            self.groups, self.done = None, True
        elif len(groups) == 1:
            self.block, self.groups = groups[0].block, None
            self.live = FULL if groups[0].mask.all() else groups[0].mask
        else:
            self.groups = groups

    def diverge(self, taken: np.ndarray, mask: np.ndarray, target: int, following: int) -> int:
        """Split the executing lanes between two blocks."""
        groups = [g for g in self.groups or [] if g is not self.current]
        exit_block = self.program.exit_block
        for block, lanes in ((target, taken), (following, mask & ~taken)):
            if block >= exit_block:
                self.live = self.live & ~lanes
            else:
                self._join(groups, block, lanes)
        self._settle(groups)
        return DIVERGED

    def jump(self, taken: np.ndarray, mask: np.ndarray, table: np.ndarray, index: np.ndarray, following: int) -> int:
        """Indirect branch: every taken lane to its own block, the others on to the next."""
        self._check_index(taken, index, table.size)
        targets = np.where(taken, table[np.where(taken, index, 0)], following)
        groups = [g for g in self.groups or [] if g is not self.current]
        for block in np.unique(targets[mask]).tolist():
            lanes = mask & (targets == block)
            if block >= self.program.exit_block:
                self.live = self.live & ~lanes
            else:
                self._join(groups, block, lanes)
        self._settle(groups)
        return DIVERGED

    @staticmethod
    def _check_index(taken: np.ndarray, index: np.ndarray, size: int) -> None:
        highest = int(index[taken].max(initial=0))
        if highest >= size:
            raise IllegalInstruction(f"brx.idx index {highest}; the table has {size} labels")

    # ---------------------------------------------------------------- what handlers ask for
    def converge(self, mask: np.ndarray, members: np.ndarray) -> bool | None:
        """True when all live lanes of `members` (u32 lane mask) execute together; None makes the warp wait for them."""
        if self.groups is None and not self.bus.on:
            return True
        wanted = int(members[int(mask.argmax())])
        missing = 0 if self.groups is None else wanted & ballot(self.live) & ~ballot(mask)
        if not missing:
            if self.bus.on:
                self._tell_meeting(mask, members)
            return True
        return self.wait(f"lanes {missing:#x} of the warp to reach this instruction", None)

    def _tell_meeting(self, mask: np.ndarray, members: np.ndarray) -> None:
        """Tell listeners which lanes have met, set by set if they name different members."""
        key, here = (self.cta.rank, self.index), ballot(mask)
        for word in {int(m) for m in members[mask]}:
            meeting = ballot(mask & (members == word))
            lanes = meeting if word != 0xFFFFFFFF else here
            self.bus.publish(Synchronise(self.id, "warp.sync", key, (word,), lanes, -1, self.at))

    def wait(self, reason: str, what: Any) -> Any:
        """Note why the warp waits (`what` is the barrier, for the scheduler) and answer None."""
        self.waiting, self.waits_for = reason, what
        return None

    def get_register(self, slot: int) -> np.ndarray:
        """The raw lanes of a register, for operations that read it when they complete. Not to be changed in place."""
        return self.registers[slot]

    def set_register(self, slot: int, lanes: np.ndarray) -> None:
        """Write all lanes of a register, for operations that complete between two blocks."""
        self.registers[slot] = lanes

    def get_registers(self, slots: tuple[int, ...]) -> np.ndarray:
        """Several 32-bit registers: uint32 [n, 32]."""
        return np.stack([self.registers[slot] for slot in slots])

    def set_registers(self, slots: tuple[int, ...], values: np.ndarray) -> None:
        """Write several 32-bit registers, uint32 [n, 32]."""
        for slot, lanes in zip(slots, values, strict=True):
            self.registers[slot] = lanes

    def progress(self) -> None:
        """Something changed that another warp may wait for."""
        self.cluster.grid.changes += 1

    def issue(self, index: int, mask: np.ndarray, active: np.ndarray) -> None:
        """Publish an issue event (only printed into blocks when somebody listens)."""
        self.at = index
        if self.bus.issues:
            self.bus.publish(Issue(self.id, index, mask, active))

    def where(self, at: int | None = None) -> Where:
        """The instruction at hand, or the one of index `at`."""
        i = self.program.function.instructions[self.at if at is None else at]
        return Where(self.program.function.name, self.cta.coordinates, self.index, i.line, i.text, i.loc)

    def special(self, name: str) -> np.ndarray:
        """A special register; clocks count this warp's instructions and the nanoseconds that it slept. Who looks at the
        clock waits for time to pass, so that is no deadlock."""
        if name in ("clock", "clock64", "globaltimer", "globaltimer_lo"):
            self.progress()
            wide = name in ("clock64", "globaltimer")
            now = self.instructions + self.slept
            return np.full(32, now if wide else now & 0xFFFFFFFF, np.uint64 if wide else np.uint32)
        if name not in self._special:
            self._special[name] = self.cta.special(name, self.index)
        return self._special[name]

    def symbol(self, name: str, dtype: type) -> np.ndarray:
        """The address of a variable in the width asked for."""
        key = f"{name}/{dtype.__name__}"
        if key not in self._symbols:
            space, offset = self.program.layout.places[name]
            address = self._address(space, offset, name, wide=dtype is np.uint64)
            self._symbols[key] = address.astype(dtype)
        return self._symbols[key]

    def _address(self, space: str, offset: int, name: str, wide: bool) -> np.ndarray:
        if space == "shared":
            return np.full(32, (self.cta.rank << 24) + offset, np.uint64)
        if space == "parameter":
            return np.full(32, self.cluster.grid.parameters + offset, np.uint64)
        if space in ("local", "param"):
            return np.uint64(self.local_base + offset) + LANE.astype(np.uint64) * np.uint64(
                self.program.layout.local_bytes
            )
        return np.full(32, self.cluster.grid.globals[name], np.uint64)

    def shared(self, addresses: np.ndarray) -> np.ndarray:
        """Generic or shared addresses as u32 shared::cluster addresses."""
        if addresses.dtype == np.uint32:
            return addresses
        return (addresses - np.uint64(SHARED_WINDOW) * (addresses >= np.uint64(SHARED_WINDOW))).astype(np.uint32)


class AsyncGroups:
    """Commit groups of the bulk and the non-bulk asynchronous copies of one warp (lanes issue together)."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {"bulk": [], "copy": [], "wgmma": []}
        self.committed: dict[str, list[list[Any]]] = {"bulk": [], "copy": [], "wgmma": []}

    def commit(self, kind: str) -> None:
        """Close the open group."""
        self.committed[kind].append(self.open[kind])
        self.open[kind] = []

    def pending(self, kind: str, allowed: int) -> list[Any]:
        """Operations of all but the `allowed` youngest groups that have not completed; completed groups are dropped."""
        groups = self.committed[kind]
        while groups and all(o.done for o in groups[0]):
            groups.pop(0)
        older = groups[: len(groups) - allowed] if allowed else groups
        return [o for g in older for o in g if not o.done]
