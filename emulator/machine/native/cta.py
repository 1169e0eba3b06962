"""What native code sees of a CTA: its words, and the state of its barriers in a table."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.builders.llvm_values import CTA
from emulator.memory.tmem import TensorMemory
from emulator.units.mbarrier import ROW, ROW_BYTES, Mbarrier

if TYPE_CHECKING:
    from emulator.machine.cta import Cta


def address_of(array: np.ndarray) -> int:
    """Where an array begins (`array.ctypes` takes six times as long)."""
    address: int = array.__array_interface__["data"][0]
    return address


_WORD = {name: offset // 8 for name, offset in CTA.items()}


class BarrierTable(dict[int, Mbarrier]):
    """The mbarriers of a CTA by shared offset; their state lies in a table with a row for every 8 bytes of memory, of
    which the system only gives the touched pages."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        rows = np.zeros(-(-nbytes // 8) * len(ROW), np.int32)
        self.address = address_of(rows)
        self._rows = rows.data

    def __setitem__(self, offset: int, barrier: Mbarrier) -> None:
        if offset in self:
            self.pop(offset)
        if offset % 8 == 0:
            first = offset // 8 * len(ROW)
            barrier.move(self._rows[first : first + len(ROW)])
        super().__setitem__(offset, barrier)

    def pop(self, offset: int, *default: Any) -> Any:
        """Take a barrier out; its state stays with it."""
        barrier = super().pop(offset, *default)
        if isinstance(barrier, Mbarrier):
            row = barrier.row
            barrier.move(array("i", bytes(ROW_BYTES)))
            row[0] = 0
        return barrier


class NativeCta:
    """The words of one CTA, kept up to date."""

    def __init__(self, cta: Cta) -> None:
        self.words = array("q", bytes(8 * len(CTA)))
        self.barriers = BarrierTable(cta.shared.nbytes)
        self._peers = array("q", ())
        for name, value in (
            ("shared", address_of(cta.shared.u8)),
            ("shared_bytes", cta.shared.nbytes),
            ("barriers", self.barriers.address),
        ):
            self.words[_WORD[name]] = value
        cta.mbarriers = self.barriers

    @property
    def address(self) -> int:
        """Where the words are."""
        return self.words.buffer_info()[0]

    def join(self, peers: list[NativeCta]) -> None:
        """The CTAs of the cluster by rank."""
        self._peers = array("q", [p.address for p in peers])
        self.words[_WORD["ctas"]] = self._peers.buffer_info()[0]
        self.words[_WORD["cta_count"]] = len(peers)

    def add_tensor(self, tensor: TensorMemory) -> None:
        """Tensor memory has been made."""
        self.words[_WORD["tensor"]] = address_of(tensor.words)
        self.words[_WORD["tensor_columns"]] = tensor.held.buffer_info()[0]
