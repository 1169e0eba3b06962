"""Cluster launch control: a running cluster takes over the work of one that has not started (PTX ISA 9.7.13.17,
9.7.13.18).

The response is opaque to programs. Here its four words are x, y, z of the first CTA of the cancelled cluster, and 1
(all zero when there was nothing left to cancel).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.isa.memory import address_of, items
from emulator.isa.operands import arity, write
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_operation, tell_signal
from emulator.isa.warplike import WarpLike
from emulator.memory.shared import split_address
from emulator.ptx.module import Instruction, Reg, Sink

NBYTES = 16


@op(
    "clusterlaunchcontrol.try_cancel.async[.space:shared::cta].mbarrier::complete_tx::bytes"
    "[.multicast::cluster::all].b128",
    section="9.7.13.17",
)
def try_cancel(b: Any, i: Instruction, m: Modifiers) -> None:
    """Ask for a pending cluster; the response and 16 bytes on the barrier arrive later, in one CTA or in all."""
    arity(i, 2)
    places = [address_of(b, o, m["space"] and "shared") for o in i.operands]
    b.effect(_try_cancel, *places, m["multicast_cluster_all"])


def _try_cancel(warp: WarpLike, mask: np.ndarray, response: np.ndarray, barrier: np.ndarray, everywhere: bool) -> None:
    ctas = warp.cluster.ctas
    targets, signals = warp.shared(response), warp.shared(barrier)
    for lane in np.flatnonzero(mask).tolist():
        rank, offset = split_address(int(targets[lane]))
        signal_rank, signal = split_address(int(signals[lane]))
        if offset % NBYTES:
            raise IllegalInstruction(f"try_cancel: response at {offset:#x}; it must be a multiple of {NBYTES}")
        ranks = [(r, r) for r in range(len(ctas))] if everywhere else [(rank, signal_rank)]
        barriers = tuple(ctas[s].mbarrier(signal) for _, s in ranks)
        for r, _ in ranks:
            ctas[r].shared.check_range(offset, NBYTES, "try_cancel")

        def complete(
            number: int,
            ranks: Any = tuple(ranks),
            offset: int = offset,
            signal: int = signal,
            barriers: tuple[Any, ...] = barriers,
        ) -> None:
            origin = warp.cluster.grid.next_cluster()
            words = np.array([0, 0, 0, 0] if origin is None else [*origin, 1], np.uint32).view(np.uint8)
            for (r, s), waiting in zip(ranks, barriers, strict=True):
                ctas[r].shared.bytes(offset, NBYTES)[:] = words
                if warp.bus.on:
                    tell_operation(warp, number, "shared", "write", np.array([offset]), NBYTES, r)
                tell_signal(warp, number, "complete_tx", (s, signal), waiting, NBYTES)

        what = f"try_cancel to {offset:#x}"
        warp.cluster.start(warp, "bulk", what, complete, None, barriers, lanes=1 << lane)


def _response(i: Instruction) -> Reg:
    source = i.operands[-1]
    if not isinstance(source, Reg) or source.type != "b128":
        raise Unsupported(f"{source} is not a 128-bit register")
    return source


@op("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", section="9.7.13.18")
def is_canceled(b: Any, i: Instruction, m: Modifiers) -> None:
    """Whether the request has cancelled a cluster."""
    arity(i, 2)
    _, high = b.read128(_response(i))
    write(b, i.operands[0], b.cmp("ne", b.shr(high, b.const("u32", 32)), b.const("u64", 0)))


@op(
    "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
    "clusterlaunchcontrol.query_cancel.axis:get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z.b32.b128",
    section="9.7.13.18",
)
def first_ctaid(b: Any, i: Instruction, m: Modifiers) -> None:
    """Coordinates of the first CTA of the cancelled cluster (undefined if there is none; zero here)."""
    arity(i, 2)
    low, high = b.read128(_response(i))
    words = [*b.unpack(low, 2), *b.unpack(high, 2)]
    if "axis" in m:
        write(b, i.operands[0], words["xyz".index(m["axis"][-1])])
        return
    targets = items(i.operands[0])
    if len(targets) != 4:
        raise Unsupported(f"{len(targets)} destinations; .v4 needs 4")
    for target, word in zip(targets[:3], words, strict=False):
        if not isinstance(target, Sink):
            write(b, target, word)
