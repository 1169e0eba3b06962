"""Registers that are touched while an asynchronous operation still reads or writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from emulator.events import Issue, WarpId
from emulator.ptx.module import Instruction, Vector
from emulator.ptx.registers import registers_of
from emulator.watch.flow import Hazards, hazards, slots, touched, written

_PRODUCT, _COMMIT, _WAIT = "wgmma.mma_async", "wgmma.commit_group", "wgmma.wait_group"
_found: WeakKeyDictionary[Any, dict[str, Hazards]] = WeakKeyDictionary()


def _once(program: Any, name: str, make: Callable[[], Hazards]) -> Hazards:
    """Hazards of a program, which many launches may run."""
    table = _found.setdefault(program, {})
    if name not in table:
        table[name] = make()
    return table[name]


class Early:
    """Follows the open registers of every warp, in programs that have suspects."""

    def __init__(self, hazards: Hazards) -> None:
        self.hazards = hazards
        self._open: dict[int, int] = {}
        self._opened: dict[int, dict[int, int]] = {}

    @property
    def needed(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.hazards.suspects)

    def issue(self, record: Issue) -> int | None:
        """Take an instruction; the one that opened a register which this one touches (itself: open from the start), or
        None."""
        at, who = record.index, id(record.who)
        if not record.mask.any():
            return None
        state = self._open.get(who, self.hazards.start)
        early = self.hazards.suspects.get(at, 0) & state
        opened = self._opened.setdefault(who, {})
        culprit = self._culprit(at, early, opened) if early else None
        if at in self.hazards.opens:
            opened.pop(at, None)
            opened[at] = self.hazards.opens[at]
        self._open[who] = self.hazards.after(at, state)
        return culprit

    @staticmethod
    def _culprit(at: int, early: int, opened: dict[int, int]) -> int:
        """The latest opener of one of the registers, else (they were moved) the latest of all."""
        latest = [n for n, word in opened.items() if word & early] or list(opened) or [at]
        return latest[-1]

    def forget(self, warps: Iterable[WarpId]) -> None:
        """Warps have ended."""
        for who in warps:
            self._open.pop(id(who), None)
            self._opened.pop(id(who), None)


class EarlyProducts(Early):
    """The same for wgmma products, which are waited for group by group."""

    def __init__(self, hazards: Hazards, code: tuple[Instruction, ...]) -> None:
        super().__init__(hazards)
        self.commits = frozenset(n for n, i in enumerate(code) if i.opcode.startswith(_COMMIT))
        self.waits = {n: _allowed(i) for n, i in enumerate(code) if i.opcode.startswith(_WAIT)}
        self._groups: dict[int, list[int]] = {}

    def issue(self, record: Issue) -> int | None:
        """Take an instruction."""
        at, who = record.index, id(record.who)
        early = super().issue(record)
        groups = self._groups.setdefault(who, [0])
        if at in self.hazards.opens:
            groups[-1] |= self.hazards.opens[at]
        elif at in self.commits:
            groups.append(0)
        elif at in self.waits:
            kept = self.waits[at] + 1
            del groups[:-kept]
            # Moves of registers that are complete now carry nothing on.
            word = 0
            for group in groups:
                word |= group
            self._open[who] = word
        return early

    def forget(self, warps: Iterable[WarpId]) -> None:
        """Warps have ended."""
        ended = list(warps)
        super().forget(ended)
        for who in ended:
            self._groups.pop(id(who), None)


def early_loads(program: Any) -> Early:
    """Registers of tcgen05.ld before tcgen05.wait::ld."""
    return Early(
        _once(
            program,
            "loads",
            lambda: hazards(
                program,
                lambda i: slots(registers_of(i.operands[0])) if i.opcode.startswith("tcgen05.ld.") else 0,
                lambda i: i.opcode.startswith("tcgen05.wait::ld"),
            ),
        )
    )


def early_products(program: Any) -> EarlyProducts:
    """Accumulators of wgmma before the wgmma.wait_group that covers them."""
    found = _once(
        program,
        "products",
        lambda: hazards(
            program,
            _accumulators,
            _waits_for_all,
            lambda i: 0 if i.opcode.startswith(_PRODUCT) else touched(i),
        ),
    )
    return EarlyProducts(found, program.function.instructions)


def early_operands(program: Any) -> EarlyProducts:
    """Registers of A that are written before the wgmma.wait_group that covers the product: it reads them until then,
    and assemblers give them to the next value at once."""
    found = _once(
        program,
        "operands",
        lambda: hazards(program, _operands, _waits_for_all, written, carried=False),
    )
    return EarlyProducts(found, program.function.instructions)


def unfenced_products(program: Any) -> Early:
    """Registers of wgmma that other instructions have written since the last wgmma.fence, or before any."""
    return Early(
        _once(
            program,
            "fences",
            lambda: hazards(
                program,
                # Compilers move constants and results around freely; the assembler knows.
                lambda i: 0 if i.opcode.startswith(("wgmma.", "mov.")) else written(i),
                lambda i: i.opcode.startswith("wgmma.fence"),
                lambda i: _accumulators(i) | _operands(i),
                initially=True,
            ),
        )
    )


def _accumulators(i: Instruction) -> int:
    return slots(registers_of(i.operands[0])) if i.opcode.startswith(_PRODUCT) else 0


def _operands(i: Instruction) -> int:
    """Registers of A, if A is in registers."""
    held = i.opcode.startswith(_PRODUCT) and isinstance(i.operands[1], Vector)
    return slots(registers_of(i.operands[1])) if held else 0


def _waits_for_all(i: Instruction) -> bool:
    """Whether no product is under way behind it."""
    return i.opcode.startswith(_WAIT) and _allowed(i) == 0


def _allowed(i: Instruction) -> int:
    return int(getattr(i.operands[0], "bits", 0)) if i.operands else 0
