"""The probe kernels of mbarrier: 50 scripts of one thread, word by word, and 7 with two CTAs of a cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import emulator
from emulator.errors import BarrierFault
from emulator.memory.globals import GlobalMemory
from tests.emulator.goldens.probe import POLICIES, Out, launches, member, run, table, u32

SCRIPTS: dict[str, Any] = table("mbarrier/scripts")
ALONE = [n for n in SCRIPTS if not n.startswith("cl_")]
CLUSTER = [n for n in SCRIPTS if n.startswith("cl_")]
TOKENS = ("arrive", "arriven", "arrnc", "arrx", "drop", "dropn", "dropx")
BYTES = ((1 << 21) - 1) << 21
LATE = {"tx4096", "tx16384", "tx65536"}
"""Exceptions: an expect_tx directly before the arrive.expect_tx had not been performed yet when the token was made, so
its byte count is not compared."""


def words_of(name: str, policy: str = "in_order") -> np.ndarray:
    kernel = launches("mbar")[("mb_" if name in ALONE else "") + name][0]
    want = member(f"mbarrier/{name}")
    cluster = (1, 1, 1) if name in ALONE else (2, 1, 1)
    parameters = [Out(want.nbytes), u32(0)] if name in ALONE else [Out(want.nbytes)]
    (out,) = run("mbar", kernel, cluster[0], 1, parameters, cluster=cluster, policy=policy, seed=3)
    return out.view(np.uint64)


@pytest.mark.parametrize("name", ALONE)
def test_scripts(name: str) -> None:
    """Answers of every step; of tokens the upper half (the lower one is left-over register contents). A live barrier's
    word is not visible in shared memory: a raw step shows it only after inval."""
    got, want = words_of(name), member(f"mbarrier/{name}")
    compared = 0
    for index, (step, *_) in enumerate(SCRIPTS[name]):
        mask = (1 << 64) - 1
        if step in TOKENS:
            mask ^= 0xFFFFFFFF
            mask &= ~BYTES if name in LATE and step == "arrx" else mask
        if step == "raw" and not name.startswith("raw_"):
            continue
        assert int(got[index]) & mask == int(want[index]) & mask, (index, SCRIPTS[name][index])
        compared += 1
    assert compared


@pytest.mark.parametrize("name", CLUSTER)
@pytest.mark.parametrize("policy", POLICIES)
def test_scripts_of_two_ctas(name: str, policy: str) -> None:
    """Addresses (0 own, 1 the peer's, 2 own by mapa) and the data (26) of both ranks. How often the wait was polled (3)
    and who arrived first (the token in 4) are matters of time, and 25 is a stale read (see below)."""
    got, want = words_of(name, policy).reshape(2, 32), member(f"mbarrier/{name}").reshape(2, 32)
    for rank in (0, 1):
        for index in (0, 1, 2, 26):
            assert got[rank, index] == want[rank, index], (rank, index, hex(got[rank, index]), hex(want[rank, index]))
    untouched = want == np.uint64(0xCCCCCCCCCCCCCCCC)
    assert (got[untouched] == want[untouched]).all()


def test_the_final_words_of_two_ctas() -> None:
    """Word 25 was read from a live barrier after a cluster barrier, and what the hardware returned is what the
    *previous* launch left there: so each script's true final word stands in the capture of the next one."""
    text = bytes(member("ptx/mbar")).decode()
    read = " ld.volatile.shared.b64 v,[m];"
    ended = emulator.parse(text.replace(read, " mbarrier.inval.shared.b64 [m];" + read))
    order = [c for c in launches("mbar") if c in CLUSTER]
    for name, following in pairwise(order):
        memory = GlobalMemory()
        region = memory.allocate(512, "words", fill=0xCC)
        parameters = [region.address.to_bytes(8, "little")]
        emulator.run(ended, launches("mbar")[name][0], (2, 1, 1), (1, 1, 1), parameters, memory, cluster=(2, 1, 1))
        got = region.views[8].reshape(2, 32)[:, 25]
        assert (got == member(f"mbarrier/{following}").reshape(2, 32)[:, 25]).all(), name


def test_what_the_hardware_faulted_on() -> None:
    """More arrivals than pending; bytes beyond the range; an arrival on a barrier that was dropped to nothing."""
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"
    head += ".shared .align 8 .b8 mb[8]; .reg .b32 m; .reg .b64 v; mov.u32 m,mb;\n"
    for body, message in (
        ("mbarrier.init.shared.b64 [m],2; mbarrier.arrive.shared.b64 v,[m],3;", "arrive of 3 with only 2 of 2 pending"),
        (
            "mbarrier.init.shared.b64 [m],1; mbarrier.expect_tx.relaxed.cta.shared.b64 [m],1048575; "
            "mbarrier.expect_tx.relaxed.cta.shared.b64 [m],1;",
            "-1048576",
        ),
        (
            "mbarrier.init.shared.b64 [m],1; mbarrier.arrive_drop.shared.b64 v,[m]; mbarrier.arrive.shared.b64 v,[m];",
            "only 0 of 0",
        ),
    ):
        module = emulator.parse(head + body + " ret; }")
        with pytest.raises(BarrierFault, match=message) as fault:
            emulator.run(module, "k", (1, 1, 1), (1, 1, 1), [], GlobalMemory())
        assert "PTX line 6" in str(fault.value)
