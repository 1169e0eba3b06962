"""initcheck at asynchronous operations: copies pass definedness on when they complete, matrix products need it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emulator.events import Access, WarpId
from emulator.watch.launched import Launched

U8 = NDArray[np.uint8]


@dataclass
class Operation:
    """An operation in flight: the instruction that issued it, and what it has touched. Copies publish what they read
    before what they write."""

    who: WarpId
    index: int
    product: bool
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)


def complete(launched: Launched, operation: Operation) -> None:
    """The operation has completed."""
    missing = [undefined(launched, read) for read in operation.reads]
    if operation.product:
        for read, found in zip(operation.reads, missing, strict=True):
            if found is not None:
                _operand(launched, operation, read, found)
    for write in operation.writes:
        if write.addresses.size:
            _write(launched, operation, write, None if operation.product else _passed(operation, missing, write))


def undefined(launched: Launched, read: Access) -> U8 | None:
    """Definedness of what an operation reads, uint8 [addresses, bytes]; None if all is defined."""
    if not read.addresses.size:
        return None
    if read.space == "tensor":
        found = launched.tensor(read.who, read.rank).get(read.addresses)
        return np.repeat(found.reshape(-1, 1), 4, axis=1) if found.any() else None
    low, high = int(read.addresses.min()), int(read.addresses.max()) + read.nbytes
    _, shadow = launched.region(read, low, high)
    if shadow is None or shadow.clean(low, high):
        return None
    found = shadow.get(read.addresses.astype(np.int64).ravel(), read.nbytes)
    return found if found.any() else None


def _operand(launched: Launched, operation: Operation, read: Access, found: U8) -> None:
    """A matrix product reads what is undefined."""
    row = int(np.flatnonzero(found.any(axis=1))[0])
    address = int(read.addresses.ravel()[row])
    into = [w for w in operation.writes if w.space == read.space == "tensor" and w.rank == read.rank]
    accumulator = any(address in w.addresses for w in into)
    kind = "uninitialised accumulator" if accumulator else "uninitialised matrix operand"
    key = (kind, launched.begin.kernel, operation.index, read.space)
    if launched.found.count(key):
        return
    if read.space != "tensor":
        address += int(np.flatnonzero(found[row])[0])
    share = f"{int(found.any(axis=1).sum())} of {found.shape[0]} pieces of {read.nbytes} bytes"
    what = "the accumulator, which is added to," if accumulator else "an operand"
    missing = f"{what} must be written before the matrix product reads it: {share} are undefined"
    at = launched.where(operation.who, operation.index)
    origin = launched.tainted(read, address)
    launched.report(key, kind, at, launched.place(read, None, address), missing, origin)


def _passed(operation: Operation, missing: list[U8 | None], write: Access) -> U8 | None:
    """Definedness uint8 [addresses, bytes] of what a copy writes; None if all of it is defined.

    A copy writes its bytes in the order in which it reads them; one to tensor memory repeats its rows.
    """
    if all(found is None for found in missing):
        return None
    given = [
        np.zeros(r.addresses.size * r.nbytes, np.uint8) if m is None else m.reshape(-1)
        for r, m in zip(operation.reads, missing, strict=True)
    ]
    source = np.concatenate(given)
    shape = write.addresses.size, write.nbytes
    total = shape[0] * shape[1]
    if total == source.size:
        return source.reshape(shape)
    if write.space == "tensor" and total % source.size == 0:
        width = 4 * np.unique(np.asarray(write.addresses) & 0xFFFF).size
        return np.repeat(source.reshape(-1, 1, width), total // source.size, axis=1).reshape(shape)
    # A box that is clipped at the edge of its tensor: what is undefined may be what is left out.
    enough = write.space == "global" and int((source == 0).sum()) >= total
    return None if enough else np.full(shape, 0xFF, np.uint8)


def _write(launched: Launched, operation: Operation, write: Access, values: U8 | None) -> None:
    """What an operation wrote is as defined as what it copied."""
    if write.space == "tensor":
        words = 0 if values is None else values.reshape(write.addresses.size, -1).max(axis=1)
        bad = words if values is None else np.reshape(words, write.addresses.shape)
        launched.tensor(write.who, write.rank).put(write.addresses, bad)
        return
    addresses = write.addresses.astype(np.int64).ravel()
    low, high = int(addresses.min()), int(addresses.max()) + write.nbytes
    region, shadow = launched.region(write, low, high)
    if values is not None and values.any() and launched.is_output(write, region):
        place = launched.place(write, region, first_undefined(addresses, values))
        missing = "what a copy takes to a tensor must be written to shared memory first"
        _report(launched, operation, "uninitialised output", place, missing)
        values = None
    if shadow is None:
        return
    if write.kind == "atomic" and not shadow.clean(low, high) and shadow.get(addresses, write.nbytes).any():
        missing = "memory must be written before a reduction adds to it"
        _report(launched, operation, "uninitialised operand", launched.place(write, region, low), missing)
    if values is None:
        shadow.define(addresses, write.nbytes)
    else:
        shadow.put(addresses, values, write.nbytes)


def first_undefined(addresses: NDArray[np.int64], values: U8) -> int:
    """The first undefined byte of `values`, uint8 [addresses, bytes]."""
    row, byte = (int(x[0]) for x in np.nonzero(values))
    return int(addresses[row]) + byte


def _report(launched: Launched, operation: Operation, kind: str, place: str, missing: str) -> None:
    key = (kind, launched.begin.kernel, operation.index)
    launched.report(key, kind, launched.where(operation.who, operation.index), place, missing, None)
