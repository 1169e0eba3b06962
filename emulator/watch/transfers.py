"""How definedness moves between registers and memory, and across the lanes of a warp.

Everything here runs only when something undefined is involved. Data that other functions arrange (matrices, tensor
memory) is arranged by those same functions, with definedness in the place of values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.events import Access
from emulator.units import fragments
from emulator.watch.registers import ALL, Registers, gather, spread

MEETING = ("exchange", "meet", "product")
"""Rules of instructions in which the lanes of a warp meet."""


def _results(undefined: np.ndarray, first: int) -> dict[int, int]:
    """Results of a handler from uint8 [results, 32, bytes], as `Registers.byte` takes them."""
    found = {}
    for k, values in enumerate(undefined):
        for byte in range(values.shape[1]):
            lanes = gather(values[:, byte])
            if lanes:
                found[16 * (first + k) + byte] = lanes
    return found


def loaded(warp: Registers, record: Access, found: np.ndarray) -> None:
    """A load from memory whose definedness is `found`, uint8 [addresses, bytes]."""
    effect = warp.plan.effect
    assert effect is not None
    arrange = effect.arguments.get("arrange")
    if arrange is not None:
        registers = arrange(np.ascontiguousarray(found))
        undefined = np.ascontiguousarray(registers).view(np.uint8).reshape(-1, 32, 4)
        warp.propagate(warp.plan.writes, _results(undefined, effect.first))
        return
    lanes = warp.lane_list(record)
    width = effect.arguments["width"]
    count = found.shape[1] // width
    undefined = np.zeros((count, 32, width), np.uint8)
    undefined[:, lanes] = found.reshape(-1, count, width).transpose(1, 0, 2)
    results = _results(undefined, effect.first)
    values = [(w, warp.value(w.cells, results)) for w in warp.plan.writes]
    warp.commit(values, warp.loaded_lanes(record))


def loaded_words(warp: Registers, found: np.ndarray) -> None:
    """tcgen05.ld of words whose definedness is `found`, uint8 [registers, 32]; of packed ones, first all low halves."""
    effect = warp.plan.effect
    assert effect is not None
    registers = found.reshape(-1, len(warp.plan.targets), 32).max(axis=0)
    undefined = np.repeat(registers[:, :, None], 4, axis=2)
    warp.propagate(warp.plan.writes, _results(undefined, effect.first))


def stored(warp: Registers, record: Access) -> np.ndarray:
    """Definedness of what a store writes, uint8 [addresses, bytes]."""
    effect = warp.plan.effect
    assert effect is not None
    values = warp.words(warp.plan.data("values"))
    arrange = effect.arguments.get("arrange")
    if arrange is not None:
        return np.asarray(arrange(np.ascontiguousarray(values).view(np.uint32)[:, :, 0]), np.uint8)
    lanes = warp.lane_list(record)
    return np.ascontiguousarray(values[:, lanes].transpose(1, 0, 2)).reshape(len(lanes), -1)


def stored_words(warp: Registers, record: Access) -> np.ndarray:
    """Definedness of the words that tcgen05.st writes, in the shape of the addresses."""
    values = warp.words(warp.plan.data("values")).any(axis=2)
    bad = np.where(values, np.uint8(0xFF), np.uint8(0))
    return np.concatenate([bad] * (record.addresses.shape[0] // bad.shape[0]))


def across(warp: Registers) -> None:
    """An instruction in which lanes meet."""
    effect = warp.plan.effect
    assert effect is not None
    if warp.plan.rule == "exchange":
        _exchange(warp)
    elif warp.plan.rule == "meet":
        lanes = warp.lanes()
        name = "p" if "p" in effect.arguments else "a"
        bad = any(warp.byte(v.whole, {}) & lanes for v in warp.plan.data(name))
        _all_results(warp, ALL if bad else 0)
    else:
        _product(warp)


def _all_results(warp: Registers, lanes: int) -> None:
    effect = warp.plan.effect
    assert effect is not None
    results = {-1 - atom: lanes for w in warp.plan.writes for cell in w.cells for atom in cell if atom < 0}
    warp.loading = next((warp.origins[s] for s in warp.plan.watched if s in warp.origins), None)
    warp.propagate(warp.plan.writes, results)


def _exchange(warp: Registers) -> None:
    """A shuffle: every lane gets what its source lane holds."""
    effect = warp.plan.effect
    assert effect is not None
    source = effect.arguments.get("source")
    source = source if isinstance(source, np.ndarray) else warp.chosen
    (value,) = warp.plan.data("a")
    results = {}
    for k, cell in enumerate(value.cells):
        given = spread(warp.byte(cell, {}) & warp.lanes())
        results[16 * effect.first + k] = gather(given[source])
    warp.loading = next((warp.origins[s] for s in warp.plan.watched if s in warp.origins), None)
    warp.propagate(warp.plan.writes, results)


def _product(warp: Registers) -> None:
    """mma.sync: an undefined row of A makes its row of D undefined, a column of B its column, and C element by
    element."""
    effect = warp.plan.effect
    assert effect is not None
    a, b, c = (_bad(warp, name) for name in "abc")
    rows, columns = fragments.matrix_a(a).any(axis=1), fragments.matrix_b(b).any(axis=1)
    form: Any = effect.arguments.get("form")
    halves = form is not None and form.how.d == "f16"
    rows_of, columns_of = np.asarray(rows)[:, None], np.asarray(columns)[None, :]
    total = np.asarray(fragments.accumulator(c, halves) != 0) | rows_of | columns_of
    kind = np.uint16 if halves else np.uint32
    undefined = fragments.registers_of(total.astype(kind))
    results: dict[int, int] = {}
    for k, register in enumerate(undefined):
        lanes = gather(register)
        results |= {16 * (effect.first + k) + byte: lanes for byte in range(8)}
    warp.loading = next((warp.origins[s] for s in warp.plan.watched if s in warp.origins), None)
    warp.propagate(warp.plan.writes, results)


def _bad(warp: Registers, name: str) -> np.ndarray:
    """Registers of an operand as uint32 [n, 32], not zero where undefined."""
    values = warp.words(warp.plan.data(name)).any(axis=2)
    return np.where(values, np.uint32(0xFFFFFFFF), np.uint32(0))
