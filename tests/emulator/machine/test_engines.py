"""The native engine against the NumPy engine: equal registers after every form, equal bits and counts of kernels."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

import emulator
from emulator.errors import MemoryFault, PtxSyntaxError, UnknownInstruction
from emulator.machine.program import Program
from tests.emulator.isa import captured
from tests.emulator.machine.arena import MY_WORD, Arena
from tests.emulator.machine.engine_pair import Pair, lanes, module, numbers, renamed

PARTIAL = np.arange(32) % 3 != 0


def _accepted(form: captured.Form) -> bool:
    try:
        Program(module(form.body, form.registers), "k")
    except (PtxSyntaxError, UnknownInstruction):
        return False
    return True


def _compare(pair: Pair, values: list[np.ndarray], live: np.ndarray) -> list[str]:
    """Lines that say where registers differ."""
    f = pair.function
    found = []
    for slot, (want, got) in enumerate(zip(*pair(values, live), strict=True)):
        if want.tobytes() != got.tobytes():
            lane = int(np.flatnonzero((want != got).reshape(-1, 32).any(axis=0))[0])
            number = f.register_names[slot].rsplit("_", 1)[1]
            inputs = {
                n: hex(int(v[..., lane])) if v.ndim == 1 else v[:, lane]
                for n, v in zip(f.register_names, values, strict=True)
                if n.endswith(f"_{number}")
            }
            texts = [i.text for i in f.instructions if f"_{number}" in i.text]
            found.append(f"{texts[0]}: lane {lane} of {inputs}: {want[..., lane]} and natively {got[..., lane]}")
    return found


@pytest.mark.parametrize("number", range(50), ids=lambda n: f"out{n}")
def test_captured_forms(number: int) -> None:
    """Every scalar form captured on an H200, on special and ordinary operands, with all and with some lanes."""
    bodies, registers = [], {}
    for k, form in enumerate(captured.forms(captured.groups()[number])):
        if not _accepted(form):
            continue
        body, names = renamed(form.body, form.registers, k)
        bodies.append(body)
        registers |= names
    pair = Pair(module("\n".join(bodies), registers))
    random = np.random.default_rng(number)
    wrong = []
    for draw, live in ((lanes, PARTIAL), (numbers, PARTIAL | True), *((lanes, PARTIAL | True),) * 6):
        values = [draw(type, random) for type in pair.function.register_types]
        wrong += _compare(pair, values, live)
    assert not wrong, "\n".join(wrong[:20])


# ---------------------------------------------------------------- kernels
KERNELS = {
    "diverging loops": """
        mov.u32 %r5, 0; mov.u32 %r6, %r1;
        TOP: setp.ge.u32 %p1, %r5, %r1; @%p1 bra OUT; mad.lo.u32 %r6, %r6, 5, %r5; and.b32 %r7, %r6, 3;
        setp.eq.u32 %p2, %r7, 2; @%p2 bra SKIP; add.u32 %r6, %r6, 7; SKIP: add.u32 %r5, %r5, 1; bra TOP;
        OUT: vote.sync.ballot.b32 %r8, %p2, 0xffffffff; xor.b32 %r6, %r6, %r8;
        st.global.u32 [%rd30], %r6; ret;""",
    "an indirect branch": """
        and.b32 %r5, %r1, 3; table: .branchtargets A, B, C, D; brx.idx %r5, table;
        A: mov.u32 %r6, 10; bra E; B: mov.u32 %r6, 11; C: add.u32 %r6, %r6, 100; bra E; D: ret;
        E: st.global.u32 [%rd30], %r6; ret;""",
    "lanes that leave": """
        setp.lt.u32 %p1, %r1, 40; @%p1 st.global.u32 [%rd30], 7; @%p1 ret; bar.warp.sync 0xffffffff;
        shfl.sync.bfly.b32 %r5|%p2, %r1, 9, 31, 0xffffffff; selp.u32 %r5, %r5, 77, %p2;
        st.global.u32 [%rd30], %r5; ret;""",
    "guards": """
        and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 1; mov.u32 %r6, 3; @%p1 mov.u32 %r6, %r1; @!%p1 add.u32 %r6, %r6, 9;
        mov.b64 %rd5, {%r6, %r1}; @%p1 mov.b64 %rd5, {%r1, %r6}; mov.b64 {%r7, %r8}, %rd5; sub.u32 %r7, %r7, %r8;
        @%p1 ld.global.u32 %r7, [%rd30]; setp.ne.u32 %p2, %r1, %r1; @%p2 ld.global.u32 %r7, [%rd4];
        st.global.u32 [%rd30], %r7; ret;""",
    "words of 128 bits and carries": """
        .reg .b128 q<3>; cvt.u64.u32 %rd5, %r1; not.b64 %rd6, %rd5; mov.b128 q1, {%rd5, %rd6};
        setp.lt.u32 %p1, %r1, 9; @%p1 mov.b128 q1, {%rd6, %rd6}; mov.b128 q2, q1; mov.b128 {%rd7, %rd8}, q2;
        mov.b64 {%r5, %r6}, %rd7; mov.b64 {%r7, %r8}, %rd8; add.cc.u32 %r5, %r5, %r7; addc.u32 %r6, %r6, %r8;
        st.global.u32 [%rd30], %r6; ret;""",
    "shared memory, barriers, atomics": """
        mov.u32 %r5, tile; mad.lo.u32 %r6, %r1, 4, %r5; st.shared.u32 [%r6], %r1; bar.sync 0; xor.b32 %r7, %r1, 33;
        mad.lo.u32 %r6, %r7, 4, %r5; ld.shared.u32 %r7, [%r6]; atom.shared.add.u32 %r8, [%r5], %r7; bar.sync 0;
        ld.shared.u32 %r8, [%r5]; add.u32 %r7, %r7, %r8; st.global.u32 [%rd30], %r7; ret;""",
    "a clock": """
        mov.u32 %r5, %clock; LOOP: nanosleep.u32 20; mov.u32 %r6, %clock; sub.u32 %r6, %r6, %r5;
        setp.lt.u32 %p1, %r6, 300; @%p1 bra LOOP; st.global.u32 [%rd30], %r6; ret;""",
    "a queue of one place": """
        mov.u32 %r5, full; mov.u32 %r6, empty; mov.u32 %r7, tile; setp.eq.u32 %p1, %r1, 0;
        @%p1 mbarrier.init.shared.b64 [%r5], 32; @%p1 mbarrier.init.shared.b64 [%r6], 32; bar.sync 0;
        mov.u32 %r8, 0; mov.u32 %r10, 0; setp.ge.u32 %p2, %r1, 32; @%p2 bra TAKE;
        GIVE: mad.lo.u32 %r11, %r1, 4, %r7; mad.lo.u32 %r12, %r8, 100, %r1; st.shared.u32 [%r11], %r12;
        mbarrier.arrive.shared.b64 _, [%r5]; and.b32 %r9, %r8, 1;
        W1: mbarrier.try_wait.parity.shared.b64 %p3, [%r6], %r9; @!%p3 bra W1;
        add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, 5; @%p4 bra GIVE; bra DONE;
        TAKE: and.b32 %r9, %r8, 1; W2: mbarrier.try_wait.parity.shared.b64 %p3, [%r5], %r9; @!%p3 bra W2;
        sub.u32 %r11, 63, %r1; mad.lo.u32 %r11, %r11, 4, %r7; ld.shared.u32 %r12, [%r11]; add.u32 %r10, %r10, %r12;
        mbarrier.arrive.shared.b64 _, [%r6]; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, 5; @%p4 bra TAKE;
        DONE: st.global.u32 [%rd30], %r10; ret;""",
}  # fmt: skip
DECLARATIONS = ".shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 16 .b32 tile[64];"
COUNTS = ("instructions", "operations", "output", "by_warp", "by_line", "schedule")


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str, policy: str) -> None:
    """Control flow, memory and waiting: the same bits and the same counts, also of the last, partial warp."""
    results = []
    for engine in ("numpy", "llvm"):
        out = np.arange(128, dtype=np.uint32) * 3
        settings = {"declarations": DECLARATIONS, "grid": 2, "block": 57, "policy": policy, "seed": 5, "engine": engine}
        if name == "a queue of one place":
            settings["block"] = 64
        launch = Arena(out=out).run(MY_WORD + KERNELS[name], **settings)
        results.append((out.tolist(), *(getattr(launch, field) for field in COUNTS)))
    assert results[0] == results[1]
    assert results[0][0] != (np.arange(128) * 3).tolist()


@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
@pytest.mark.parametrize(("dtype", "width", "causal"), [("f16", 64, False), ("bf16", 128, True)])
def test_attention(dtype: str, width: int, causal: bool, policy: str) -> None:
    """A real kernel: copies, matrix products, tensor memory, warps of different roles."""
    torch = pytest.importorskip("torch")
    backends = pytest.importorskip("backends")
    from kernels.fmha import fmha

    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    random = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, n, 2, width, generator=random).to(kind) for n in (200, 330, 330))
    results = []
    for engine in ("numpy", "llvm"):
        backend = backends.get(
            "emulated", arch="sm_100a", policy=policy, seed=1, run=partial(emulator.run, engine=engine)
        )
        out = fmha(q, k, v, causal=causal, backend=backend)
        counts = [[getattr(launch, field) for field in COUNTS] for launch in backend.last_launches]
        results.append((out.out.view(torch.int16).tolist(), out.lse.view(torch.int32).tolist(), counts))
    assert results[0] == results[1]
    assert results[0][2][0][0] > 10_000


def test_faults_are_the_same() -> None:
    """What a handler raises travels through native code; the report names the same instruction."""
    messages = []
    for engine in ("numpy", "llvm"):
        out = np.zeros(64, np.uint32)
        with pytest.raises(MemoryFault) as fault:
            Arena(out=out).run(
                MY_WORD + "add.s64 %rd30, %rd30, 128; st.global.u32 [%rd30], %r1; ret;", block=64, engine=engine
            )
        messages.append(re.sub("0x[0-9a-f]+", "ADDRESS", str(fault.value)))
    assert messages[0] == messages[1]
    assert "lane 0 and 31 more" in messages[0]
