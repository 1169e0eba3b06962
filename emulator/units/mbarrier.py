"""The mbarrier object (PTX "Parallel Synchronization: mbarrier"), state and rules as measured on an H200.

A live barrier's word is not visible in shared memory: the state lives here, and `word()` gives what `mbarrier.inval`
writes back. Layout of the word: bit 0 = 0; [20:1] = 2^20 - expected; [41:21] = completed - expected bytes, two's
complement; bit 42 = 0; [62:43] = 2^20 - pending (0: nothing pending, waiting for bytes); bit 63 = phase.
"""

from __future__ import annotations

from array import array
from typing import Any

from emulator.errors import BarrierFault

MAX_COUNT = (1 << 20) - 1
_FIELD = 1 << 20
ROW = ("live", "phase", "pending", "expected", "tx", "completions", "spent", "unused")
"""The words (32 bits, signed) of a barrier's state, for code that reads it where it lies. `live` is 0 where there is no
barrier."""

ROW_BYTES = 4 * len(ROW)
_TX_MASK = (1 << 21) - 1


def _word(name: str, doc: str) -> Any:
    """A property that is a word of the row."""
    place = ROW.index(name)

    def get(self: Mbarrier) -> int:
        return self.row[place]

    def put(self: Mbarrier, value: int) -> None:
        self.row[place] = value

    return property(get, put, doc=doc)


class Mbarrier:
    """One barrier at shared offset `address` (for messages) that expects `count` arrivals a phase, 1..2^20-1.

    `phase` 0/1; `pending` arrivals still to come; `expected` arrivals of the next phase; `tx` = bytes completed minus
    bytes expected, so a phase waits while it is not zero, on either side. A phase completes, and `pending` is
    reloaded, when pending and tx are both zero after an operation. `completions` counts completed phases. Dropping the
    expected count to 0 completes the phase and leaves a barrier that no arrival may touch again.
    """

    __slots__ = ("address", "row")

    def __init__(self, count: int, address: int = 0) -> None:
        self.address = address
        if not 1 <= count <= MAX_COUNT:
            raise BarrierFault(f"{self._name()}: init with count {count}; allowed: 1..{MAX_COUNT}")
        self.row: array[int] | memoryview = array("i", (1, 0, count, count, 0, 0, 0, 0))

    def move(self, row: array[int] | memoryview) -> None:
        """Keep the state in another row from now on."""
        row[:] = array("i", self.row)
        self.row = row

    phase = _word("phase", "0 or 1, the bit of the current phase.")
    pending = _word("pending", "Arrivals still to come in this phase.")
    expected = _word("expected", "Arrivals of the next phase.")
    tx = _word("tx", "Bytes completed minus bytes expected.")
    completions = _word("completions", "Phases completed.")
    spent = _word("spent", "1 once the expected count has dropped to 0.")

    def arrive(self, count: int = 1, complete: bool = True) -> int:
        """Arrive `count` times; returns the token. `complete=False` is `.noComplete`: it must not end the phase."""
        token = self.word()
        self._take(count, "arrive")
        self._finish("" if complete else f"arrive.noComplete of {count}")
        return token

    def arrive_drop(self, count: int = 1, tx: int = 0, complete: bool = True) -> int:
        """Arrive and lower the expected count of all later phases by `count`; `tx` is the `.expect_tx` form."""
        token = self.word()
        self.expected -= self._take(count, "arrive_drop")
        self._add(-tx, "arrive_drop.expect_tx")
        self._finish("" if complete else f"arrive_drop.noComplete of {count}")
        return token

    def arrive_expect_tx(self, tx: int) -> int:
        """`mbarrier.arrive.expect_tx`: expect `tx` more bytes, then arrive once; returns the token."""
        token = self.word()
        self._add(-tx, "arrive.expect_tx")
        self._take(1, "arrive.expect_tx")
        self._finish()
        return token

    def expect_tx(self, nbytes: int) -> None:
        """Expect `nbytes` more in this phase."""
        self._add(-nbytes, "expect_tx")
        self._finish()

    def complete_tx(self, nbytes: int) -> None:
        """`nbytes` have arrived; may come before the matching `expect_tx`."""
        self._add(nbytes, "complete_tx")
        self._finish()

    def test_parity(self, parity: int) -> bool:
        """True iff the phase of that parity has completed: the current phase bit differs from bit 0 of `parity`."""
        return self.phase != (parity & 1)

    def test_token(self, token: int) -> bool:
        """True iff the token's phase bit differs from the current one: a token two phases old answers False."""
        return self.phase != token >> 63

    def word(self) -> int:
        """The 64-bit object as `mbarrier.inval` leaves it in memory."""
        return (
            (_FIELD - self.expected) % _FIELD << 1
            | (self.tx & _TX_MASK) << 21
            | (_FIELD - self.pending) % _FIELD << 43
            | self.phase << 63
        )

    def __str__(self) -> str:
        waiting = f", {-self.tx} bytes outstanding" if self.tx < 0 else f", {self.tx} bytes too many" if self.tx else ""
        return f"{self._name()} phase {self.phase}, {self.pending} of {self.expected} arrivals pending{waiting}"

    def _name(self) -> str:
        return f"mbarrier {self.address:#x}"

    def _take(self, count: int, what: str) -> int:
        if count < 1:
            raise BarrierFault(f"{self._name()}: {what} with count {count}; at least 1")
        if count > self.pending:
            raise BarrierFault(f"{self._name()}: {what} of {count} with only {self.pending} of {self.expected} pending")
        self.pending -= count
        return count

    def _add(self, nbytes: int, what: str) -> None:
        total = self.tx + nbytes
        if abs(total) > MAX_COUNT:
            grown = f"{what} of {abs(nbytes)} bytes takes the byte count to {total}"
            raise BarrierFault(f"{self._name()}: {grown}; limit +-{MAX_COUNT}")
        self.tx = total

    def _finish(self, forbidden: str = "") -> None:
        """End the phase when nothing is pending; `forbidden` names an operation that must not end it."""
        if self.pending or self.tx or self.spent:
            return
        if forbidden:
            raise BarrierFault(f"{self._name()}: {forbidden} completed the phase")
        self.phase ^= 1
        self.pending = self.expected
        self.spent = not self.expected
        self.completions += 1


def pending_count(token: int) -> int:
    """`mbarrier.pending_count`: arrivals that were pending before the arrive that returned `token`."""
    return (_FIELD - (token >> 43 & (_FIELD - 1))) % _FIELD
