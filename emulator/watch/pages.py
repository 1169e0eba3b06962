"""Shadow of global memory, page by page as it is touched. A cell remembers its last writer and its last reader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from emulator.watch.agents import Touch
from emulator.watch.shadow import I64, Report, check, note_lanes
from emulator.watch.sites import EPOCH_SHIFT, SITE_SHIFT, Sites

PAGE_BITS = 16
"""64 KiB of memory a page."""


class _Page:
    __slots__ = ("written", "read")

    def __init__(self) -> None:
        self.written: I64 | None = None
        self.read: I64 | None = None


class Pages:
    """Cells of `unit` bytes."""

    def __init__(self, sites: Sites, unit: int) -> None:
        self.sites = sites
        self.unit = unit
        self.pages: dict[int, _Page] = {}
        self.count = (1 << PAGE_BITS) // unit

    def access(self, touch: Touch, report: Report) -> None:
        """Check an access against what is recorded, then record it. Clashes name the byte address."""
        access = touch.access
        addresses, lanes = access.addresses, touch.lanes
        if touch.picked is not None:
            addresses = addresses[touch.picked]
        if not addresses.size:
            return
        per = max(access.nbytes // self.unit, 1)
        cells = (addresses.ravel().astype(np.int64) // self.unit)[:, None] + np.arange(per)
        if not isinstance(lanes, int):
            lanes = np.broadcast_to(np.asarray(lanes)[:, None], cells.shape)
        first, last = int(cells[:, 0].min()) // self.count, int(cells[:, -1].max()) // self.count
        if first == last:
            self._page(touch, first, cells - first * self.count, lanes, report)
            return
        numbers = cells // self.count
        for number in np.unique(numbers).tolist():
            pick = numbers == number
            part = lanes if isinstance(lanes, int) else lanes[pick]
            self._page(touch, number, cells[pick] - number * self.count, part, report)

    def _page(self, touch: Touch, number: int, cells: I64, lanes: Any, report: Report) -> None:
        page = self.pages.get(number)
        if page is None:
            page = self.pages[number] = _Page()

        def named(clash: Any) -> None:
            report(replace(clash, cell=(clash.cell + number * self.count) * self.unit))

        if page.written is not None:
            check(touch, page.written[cells], self.sites, cells, lanes, named, proxies=True)
        tag = touch.epoch << EPOCH_SHIFT | self.sites.site(touch) << SITE_SHIFT
        if touch.access.kind == "read":
            if page.read is None:
                page.read = np.zeros(self.count, np.int64)
            if isinstance(lanes, int):
                page.read[cells] = tag | lanes
            else:
                note_lanes(page.read, tag, cells, lanes)
            return
        if page.read is not None:
            check(touch, page.read[cells], self.sites, cells, lanes, named, proxies=False)
        if page.written is None:
            page.written = np.zeros(self.count, np.int64)
        page.written[cells] = tag | lanes
