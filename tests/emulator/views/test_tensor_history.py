"""The journal of tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.memory.tmem import COLUMNS, LANES, POISON
from emulator.views import tensor_history
from emulator.views.labels import ViewError
from emulator.views.tensor_history import TensorHistory, Writer, flat

MMA, ST = Writer("mma", 8, 3), Writer("st", 0, 5)


def memory(**words: int) -> np.ndarray:
    made = np.full((LANES, COLUMNS), POISON, np.uint32)
    for place, value in words.items():
        lane, column = map(int, place[1:].split("_"))
        made[lane, column] = value
    return made


def at(*places: tuple[int, int]) -> np.ndarray:
    return flat(np.array([lane << 16 | column for lane, column in places]))


def test_flat_words_of_addresses():
    assert flat(np.array([[0, 1 << 16 | 3], [127 << 16 | 511, 5]])).tolist() == [0, 515, 127 * 512 + 511, 5]


def test_every_past_state_can_be_seen():
    history = TensorHistory()
    history.allocate(1, 0, 32, False)
    history.write(5, memory(w0_0=7), MMA, at((0, 0)))
    history.write(9, memory(w0_0=8, w1_2=9), ST, at((0, 0), (1, 2)), np.array([0, 1]))
    assert history.steps == [1, 5, 9]
    before, first, last = history.at(4), history.at(5), history.at()
    assert not before.defined.any() and before.words[0, 0] == POISON
    assert (first.words[0, 0], first.writer[0, 0], first.defined.sum()) == (7, 0, 1)
    assert (last.words[0, 0], last.words[1, 2], last.writer[1, 2], last.step) == (8, 9, 1, 9)
    assert last.writers == (MMA, ST) and last.allocated == ((0, 32),)


def test_without_addresses_what_changed_was_written():
    history = TensorHistory()
    history.write(1, memory(w3_4=1), MMA, None)
    history.write(2, memory(w3_4=1), MMA, None)
    state = history.at()
    assert np.argwhere(state.defined).tolist() == [[3, 4]] and history.steps == [1]


def test_writing_the_poison_defines_a_word():
    history = TensorHistory()
    history.write(1, memory(), ST, at((0, 0)), np.array([0]))
    assert history.at().defined.sum() == 1


def test_a_new_allocation_undefines_its_columns_alone():
    history = TensorHistory()
    history.allocate(1, 0, 32, False)
    history.allocate(1, 32, 32, False)
    history.write(2, memory(w0_0=1, w0_40=2), MMA, at((0, 0), (0, 40)))
    history.allocate(3, 0, 32, True)
    assert history.at(3).allocated == ((32, 32),)
    history.allocate(4, 0, 32, False)
    assert np.argwhere(history.at().defined).tolist() == [[0, 40]]
    assert history.at(3).defined.sum() == 2


def test_a_word_stored_by_another_thread_than_loaded_it_has_moved():
    history = TensorHistory()
    here = at((0, 0), (0, 1))
    history.write(1, memory(w0_0=1, w0_1=2), MMA, here)
    history.load(here, np.array([4, 5]), index=11)
    history.write(2, memory(w0_0=3, w0_1=4), ST, here, np.array([4, 6]))
    assert np.argwhere(history.at().moved).tolist() == [[0, 1]]
    assert history.trips == {(11, 5): 1}
    # A product that adds leaves the mark, one that overwrites takes it away.
    history.write(3, memory(w0_0=3, w0_1=5), MMA, here)
    assert history.at().moved.sum() == 1
    history.write(4, memory(w0_0=3, w0_1=6), MMA, here, None, True)
    assert not history.at().moved.any()


def test_a_store_without_a_load_before_it_moves_nothing():
    history = TensorHistory()
    here = at((0, 0))
    history.load(here, np.array([1]), index=0)
    history.write(1, memory(w0_0=1), MMA, here)
    history.write(2, memory(w0_0=2), ST, here, np.array([9]))
    assert not history.at().moved.any() and not history.trips


def test_the_oldest_changes_are_folded_when_the_journal_is_full(monkeypatch):
    monkeypatch.setattr(tensor_history, "JOURNAL_BYTES", 20)
    history = TensorHistory()
    for step in range(1, 6):
        history.write(step, memory(w0_0=step), ST, at((0, 0)), np.array([0]))
    assert history.at().words[0, 0] == 5 and history.at(4).words[0, 0] == 4
    with pytest.raises(ViewError, match="step=2: tensor memory is kept from step 3 on"):
        history.at(2)
