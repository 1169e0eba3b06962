"""Which wgmma products the assembler would not leave in flight.

PTX calls it undefined when other instructions touch the registers of a product before a `wgmma.wait_group` covers it.
Yet compilers emit it: an f16 accumulator is unpacked right behind the instruction that makes it, before the wait. The
assembler then lets the product finish first ("wgmma.mma_async instructions are serialized …"), and so do we: such
products are marked `serial` and complete at issue, whatever the policy.
"""

from __future__ import annotations

from dataclasses import replace

from emulator.ptx.module import Function, Instruction, Label, LabelList, Vector
from emulator.ptx.registers import registers_of

State = dict[int, int]
"""Products in flight: instruction -> groups committed since, its own included (the least over all paths)."""

_PRODUCT, _COMMIT, _WAIT = "wgmma.mma_async.", "wgmma.commit_group.", "wgmma.wait_group."


def mark_serial(function: Function) -> Function:
    """The function with `serial` set where it must be; itself if it is set nowhere."""
    code = function.instructions
    slots = {n: _slots(i) for n, i in enumerate(code) if i.opcode.startswith(_PRODUCT)}
    if not slots:
        return function
    touched = _touched(code, slots)
    if not touched:
        return function
    marked = tuple(replace(i, serial=True) if n in touched else i for n, i in enumerate(code))
    return replace(function, instructions=marked)


def _slots(i: Instruction) -> frozenset[int]:
    """Registers that a product reads or writes when it completes: D, and A if it is in registers."""
    held = [o for o in i.operands[:2] if isinstance(o, Vector)]
    return frozenset(r.slot for o in held for r in registers_of(o))


def _touched(code: tuple[Instruction, ...], slots: dict[int, frozenset[int]]) -> set[int]:
    """Products whose registers another instruction may touch while they are in flight."""
    interesting = frozenset().union(*slots.values())
    touches = [
        frozenset() if n in slots else frozenset(r.slot for r in _registers(i)) & interesting
        for n, i in enumerate(code)
    ]
    leaders = _leaders(code)
    ends = dict(zip(leaders, [*leaders[1:], len(code)], strict=True))
    entry: dict[int, State] = {0: {}}
    found: set[int] = set()
    todo = [0]
    while todo:
        start = todo.pop()
        state = dict(entry[start])
        for n in range(start, ends[start]):
            found |= {p for p in state if touches[n] & slots[p]}
            _step(state, n, code[n])
        for following in _successors(code, ends[start] - 1):
            if following < len(code) and _merge(entry, following, state):
                todo.append(following)
    return found


def _step(state: State, n: int, i: Instruction) -> None:
    if i.opcode.startswith(_PRODUCT):
        state[n] = 0
    elif i.opcode.startswith(_COMMIT):
        for product in state:
            state[product] += 1
    elif i.opcode.startswith(_WAIT):
        allowed = getattr(i.operands[0], "bits", 0) if i.operands else 0
        for product in [p for p, groups in state.items() if groups > allowed]:
            del state[product]


def _merge(entry: dict[int, State], at: int, state: State) -> bool:
    """Add a path's state to what enters a block; True if that changed it."""
    if at not in entry:
        entry[at] = dict(state)
        return True
    known, changed = entry[at], False
    for product, groups in state.items():
        # More than eight groups are never told apart, so that loops end.
        least = min(groups, known.get(product, 8), 8)
        if product not in known or least < known[product]:
            known[product], changed = least, True
    return changed


def _registers(i: Instruction) -> list:
    found = [] if i.guard is None else [i.guard]
    return found + [r for o in i.operands for r in registers_of(o)]


def _labels(i: Instruction) -> list[int]:
    found: list[int] = []
    for o in i.operands:
        if isinstance(o, Label):
            found.append(o.index)
        elif isinstance(o, LabelList):
            found += [x.index for x in o.labels]
    return found


def _leaders(code: tuple[Instruction, ...]) -> list[int]:
    leaders = {0}
    for n, i in enumerate(code):
        labels = _labels(i)
        if labels or _ends(i):
            leaders |= {*labels, n + 1}
    return sorted(x for x in leaders if x < len(code))


def _ends(i: Instruction) -> bool:
    return i.opcode.split(".")[0] in ("ret", "exit", "trap")


def _successors(code: tuple[Instruction, ...], last: int) -> list[int]:
    i = code[last]
    falls = i.guard is not None or not (_ends(i) or i.opcode.split(".")[0] in ("bra", "brx"))
    return [*_labels(i), *([last + 1] if falls else [])]
