"""One sentence for a pair of accesses: which edge is missing between them."""

from __future__ import annotations

from emulator.watch.clocks import ORDER
from emulator.watch.naming import side
from emulator.watch.order import Order
from emulator.watch.shadow import Clash

_UNITS = {
    "copy": "cp.async.wait_group, and a barrier for other lanes, after the cp.async",
    "bulk": "cp.async.bulk.wait_group after the store, by the lane that issued it",
    "read": "cp.async.bulk.wait_group.read after the store that still reads, by the lane that issued it",
    "wgmma": "wgmma.wait_group after the product",
    "pipe": "tcgen05.commit to an mbarrier that is waited for",
    "load": "tcgen05.wait::ld before the arrival that tells the other side",
    "store": "tcgen05.wait::st before the arrival that tells the other side",
}


def missing_edge(clash: Clash, order: Order) -> str:
    """What should stand between the recorded access and the new one."""
    touch, other = clash.touch, clash.other
    mine = side(touch.who.id, touch.operation)
    if clash.rule == "proxy":
        return (
            f"{side(other)} wrote through the generic proxy and {mine} reads through the async proxy: "
            "fence.proxy.async is missing between the write and the synchronisation"
        )
    if clash.rule in ("before", "after"):
        who = "the giving thread before it arrives" if clash.rule == "before" else "the taking thread after it waited"
        return f"tcgen05.fence::{clash.rule}_thread_sync is missing: {who} must execute it"
    if clash.other_cluster != touch.who.cluster.number:
        return (
            f"CTA {other.warp.cta if other.warp else '?'} and {mine} are in different clusters and nothing orders them"
        )
    if other.agent == "barrier":
        agent = touch.who.cluster.agents[clash.other_agent]
        if agent.key[0] < 0:
            return f"{mine} cannot know when {side(other)} completes: it signals nothing"
        place = f"mbarrier {agent.key[1]:#x}" + (
            f" of CTA rank {agent.key[0]}" if order.begin.cluster != (1, 1, 1) else ""
        )
        return (
            f"{mine} does not wait for {side(other)}: no wait on {place}, phase {clash.other_epoch - 1}, "
            "lies between them"
        )
    if other.agent in _UNITS:
        return f"{mine} does not wait for {side(other)}: missing {_UNITS[other.agent]}"
    if other.warp is touch.who.id and not touch.operation:
        lane = f"lane {clash.other_lane}" if clash.other_lane < 32 else "several lanes"
        return f"{lane} and another lane of {mine} meet nowhere in between: bar.warp.sync (__syncwarp) is missing"
    known = int(touch.know.rows[ORDER, clash.other_agent])
    told = " (an arrival without the other lanes: bar.warp.sync is missing before it)" if _partly(clash) else ""
    behind = "since its last synchronisation with it" if known else "at all"
    return f"nothing orders {side(other)} before {mine}: no barrier or mbarrier connects them {behind}{told}"


def _partly(clash: Clash) -> bool:
    """Whether some lanes of the other warp are known up to the access, but not the one that made it."""
    known = clash.touch.know.partial.get((ORDER, clash.other_agent))
    return known is not None and bool((known >= clash.other_epoch).any())
