"""Every rule of tmemcheck, and of racecheck on tensor memory."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.watch import Finding
from emulator.watch.racecheck import Racecheck
from emulator.watch.tmemcheck import Tmemcheck
from tests.emulator.watch.checked import Checked

SHARED = ".shared .align 128 .b8 tile[8192]; .shared .align 8 .b8 bar[16]; .shared .align 4 .b8 base[4];"
ALLOC = "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 64;"
DEALLOC = "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;"
START = """
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;
mov.u32 %r5, tile; mov.u32 %r6, bar; mov.u32 %r7, base; setp.eq.u32 %p4, %r2, 4; setp.eq.u32 %p5, %r1, 128;
@%p1 mbarrier.init.shared.b64 [%r6], 1; @%p1 fence.mbarrier_init.release.cluster;
"""
BEGIN = START + ALLOC + "bar.sync 0; ld.shared.u32 %r8, [%r7];"
"""Warps 0 and 4 reach the same lanes; %p2 warp 0, %p4 warp 4, %p5 its first thread; 64 columns at %r8."""
END = "bar.sync 0;" + DEALLOC
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p9, [%r6], 0; @!%p9 bra W;"
STORE = "@%p2 tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8], {%r1, %r2};"
LOAD = "@%p4 tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r20, %r21}, [%r8]; @%p4 tcgen05.wait::ld.sync.aligned;"
# D at column 0; A and B of 128 x 16 and 16 x 16 halves at `tile`; 128 rows, 16 columns, f16 to f32.
MMA = """mov.b64 %rd20, 0x400800800040; mov.u32 %r30, 0x8040010; setp.ne.u32 %p8, %r1, %r1;
@%p5 tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd20, %rd20, %r30, %p8;"""
COMMIT = "@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];"


def run(body: str, tools: str = "racecheck tmemcheck", **settings: Any) -> list[Finding]:
    """Findings of a body in a block of 160 threads."""
    launch = Checked(tools, {"out": 16})
    found = launch.run(body, declarations=SHARED, block=160, **settings)
    assert launch.error is None or found, launch.error
    return found


def kinds(body: str, **settings: Any) -> set[tuple[str, str]]:
    """(tool, kind) of every finding."""
    return {(finding.tool, finding.kind) for finding in run(body, **settings)}


HAND_OVER = (
    BEGIN
    + STORE
    + "@%p2 tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; "
    + "tcgen05.fence::after_thread_sync;"
    + LOAD
    + END
)


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_a_right_hand_over_is_silent(policy: str) -> None:
    assert run(HAND_OVER, policy=policy) == []


@pytest.mark.parametrize(
    ("dropped", "wanted"),
    [
        ("@%p2 tcgen05.wait::st.sync.aligned;", ("tmemcheck", "missing tcgen05.wait::st")),
        ("tcgen05.fence::before_thread_sync;", ("racecheck", "missing tcgen05.fence::before_thread_sync")),
        ("tcgen05.fence::after_thread_sync;", ("racecheck", "missing tcgen05.fence::after_thread_sync")),
        ("tcgen05.fence::before_thread_sync; bar.sync 0; ", ("racecheck", "race")),
    ],
)
def test_one_instruction_less_is_reported(dropped: str, wanted: tuple[str, str]) -> None:
    assert HAND_OVER.count(dropped) == 1
    # A fence is demanded of kernels that have one: another keeps the rule in force here.
    body = HAND_OVER.replace(dropped, "") + dropped.replace("bar.sync 0;", "")
    found = run(body)
    assert wanted in {(f.tool, f.kind) for f in found}
    assert {f.tool for f in found} == {wanted[0]}
    assert all("tensor memory lane 0, column 0" in f.memory for f in found)


def test_a_kernel_without_fences_is_held_to_them_on_request_only() -> None:
    body = HAND_OVER.replace("tcgen05.fence::before_thread_sync;", "").replace("tcgen05.fence::after_thread_sync;", "")
    assert run(body) == []
    launch = Checked("")
    launch.checkers = [Racecheck(strict=True)]
    (finding,) = launch.run(body, declarations=SHARED, block=160)
    assert finding.kind == "missing tcgen05.fence::before_thread_sync"


def test_a_load_is_told_before_it_is_complete() -> None:
    """Warp 4 loads and arrives; warp 0 then overwrites what may not have been read."""
    body = (
        BEGIN
        + STORE
        + "@%p2 tcgen05.wait::st.sync.aligned; bar.sync 0;"
        + LOAD
        + "bar.sync 1;"
        + STORE
        + ("@%p2 tcgen05.wait::st.sync.aligned;" + END)
    )
    assert run(body) == []
    finding = run(body.replace("@%p4 tcgen05.wait::ld.sync.aligned;", ""), tools="tmemcheck")[0]
    assert finding.kind == "missing tcgen05.wait::ld" and "before the arrival" in finding.missing


def test_registers_are_used_before_the_wait() -> None:
    use = "add.u32 %r22, %r20, 1;"
    assert run(BEGIN + STORE + "@%p2 tcgen05.wait::st.sync.aligned; bar.sync 0;" + LOAD + use + END) == []
    load, wait = LOAD.split("; ")
    found = run(BEGIN + STORE + "@%p2 tcgen05.wait::st.sync.aligned; bar.sync 0;" + load + ";" + use + wait + END)
    (finding,) = found
    assert (finding.tool, finding.kind) == ("tmemcheck", "missing tcgen05.wait::ld")
    assert finding.other is not None and finding.where.text.startswith("add.u32")
    assert finding.other.text.startswith("@%p4 tcgen05.ld")


def test_the_assembler_can_be_trusted_with_loads_but_not_with_stores() -> None:
    load, _ = LOAD.split("; ")
    body = BEGIN + STORE + "bar.sync 0;" + load + "; add.u32 %r22, %r20, 1;" + END
    launch = Checked("")
    launch.checkers = [Tmemcheck(trust_assembler=True)]
    found = launch.run(body, declarations=SHARED, block=160)
    assert [f.kind for f in found] == ["missing tcgen05.wait::st"]
    assert [f.kind for f in run(body, tools="tmemcheck")] == [
        "missing tcgen05.wait::st",
        "missing tcgen05.wait::ld",
    ]


def test_moves_of_loaded_registers_are_no_use() -> None:
    load, wait = LOAD.split("; ")
    early = "mov.b64 %rd21, {%r20, %r21};"
    late = "add.s64 %rd22, %rd21, 1;"
    before = BEGIN + STORE + "@%p2 tcgen05.wait::st.sync.aligned; bar.sync 0;" + load + ";" + early
    assert run(before + wait + late + END) == []
    assert kinds(before + late + wait + END) == {("tmemcheck", "missing tcgen05.wait::ld")}


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_a_product_and_its_commit(policy: str) -> None:
    body = BEGIN + MMA + COMMIT + WAIT + LOAD + END
    assert run(body, policy=policy) == []
    (finding,) = run(body.replace(WAIT, "bar.sync 1;"), tools="racecheck")
    assert finding.kind == "race" and "tcgen05.commit to an mbarrier that is waited for" in finding.missing


def test_operands_are_overwritten_while_they_are_multiplied() -> None:
    write = "shl.b32 %r31, %r3, 2; add.u32 %r31, %r5, %r31; @%p4 st.shared.u32 [%r31], %r1;"
    fence = "fence.proxy.async.shared::cta; bar.sync 1;"
    assert run(BEGIN + write + fence + MMA + COMMIT + WAIT + write + END) == []
    assert kinds(BEGIN + write + fence + MMA + COMMIT + write + WAIT + END) == {("racecheck", "race")}
    assert kinds(BEGIN + write + "bar.sync 1;" + MMA + COMMIT + WAIT + END) == {("racecheck", "missing proxy fence")}


def test_products_of_one_thread_are_in_order_and_of_two_are_not() -> None:
    assert run(BEGIN + MMA + MMA + COMMIT + WAIT + END) == []
    two = BEGIN + MMA + MMA.replace("%p5", "%p1") + COMMIT + WAIT + END
    assert ("racecheck", "race") in kinds(two)


# ---------------------------------------------------------------- allocation
def test_columns_freed_too_early() -> None:
    body = BEGIN + STORE + "@%p2 tcgen05.wait::st.sync.aligned; bar.sync 0;" + LOAD + END
    assert run(body) == []
    (finding,) = run(body.replace(END, DEALLOC))
    assert (finding.tool, finding.kind) == ("tmemcheck", "early dealloc")
    assert finding.other is not None
    assert finding.other.text.startswith("@%p4 tcgen05.ld") and "columns 0..63" in finding.memory
    late = BEGIN + MMA + "bar.sync 0;" + DEALLOC
    assert ("tmemcheck", "early dealloc") in kinds(late, policy="latest")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (BEGIN, "tensor memory leak"),
        (BEGIN.replace("], 64", "], 48"), "illegal allocation size"),
        (BEGIN + END + DEALLOC, "dealloc of what is not allocated"),
        (BEGIN + DEALLOC.replace(", 64", ", 32"), "dealloc of what is not allocated"),
        (
            BEGIN + "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" + ALLOC,
            "allocation after relinquish",
        ),
        (BEGIN + END + STORE, "access to unallocated columns"),
        (BEGIN + STORE.replace("[%r8]", "[%r8+63]"), "access to unallocated columns"),
        (BEGIN + STORE.replace("[%r8]", "[%r8+2097152]"), "wrong lane quarter"),
    ],
)  # fmt: skip
def test_allocation_and_lanes(body: str, kind: str) -> None:
    found = run(body, tools="tmemcheck")
    assert {f.kind for f in found} == {kind}
    assert all(f.missing and f.tool == "tmemcheck" for f in found)


def test_all_instructions_name_one_cta_group() -> None:
    body = BEGIN + COMMIT.replace("::1", "::2") + WAIT + END
    found = run(body, tools="tmemcheck", grid=2, cluster=(2, 1, 1))
    assert [f.kind for f in found] == ["mixed cta_group"]
