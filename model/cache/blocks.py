"""Blocks of a pool, shared between sequences by counting: a fork shares what is written, and copies when it writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reservation:
    """What a sequence gets before a step: its table of blocks, and blocks to be copied first, source to target."""

    table: list[int]
    copies: list[tuple[int, int]]


class Blocks:
    """Which block belongs to whom. Host only; nothing here touches a device."""

    def __init__(self, count: int, tokens: int) -> None:
        self.count, self.tokens = count, tokens
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count

    @property
    def free(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free)

    def needed(self, table: list[int], start: int, stop: int) -> int:
        """Blocks to be taken so that positions start..stop-1 can be written by the owner of `table`."""
        if stop <= start:
            return 0
        touched = table[start // self.tokens :]
        return -(-stop // self.tokens) - len(table) + sum(self._users[b] > 1 for b in touched)

    def reserve(self, table: list[int], start: int, stop: int) -> Reservation:
        """Take those blocks; `needed` says whether there are enough."""
        if stop <= start:
            return Reservation(list(table), [])
        result, copies = list(table), []
        for i in range(start // self.tokens, len(table)):
            if self._users[table[i]] > 1:
                result[i] = self._take()
                copies.append((table[i], result[i]))
                self._users[table[i]] -= 1
        result += [self._take() for _ in range(-(-stop // self.tokens) - len(table))]
        return Reservation(result, copies)

    def share(self, table: list[int]) -> list[int]:
        """A second user for every block of a table."""
        for b in table:
            self._users[b] += 1
        return list(table)

    def release(self, table: list[int]) -> None:
        """One user fewer for every block; blocks without a user are free again."""
        for b in table:
            self._users[b] -= 1
            if self._users[b] == 0:
                self._free.append(b)

    def _take(self) -> int:
        b = self._free.pop()
        self._users[b] = 1
        return b
