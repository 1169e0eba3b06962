"""The kernels that are mutated: one per part of the instruction set, all with one signature.

Parameters: two buffers of `WORDS` words (%rd1 is read, %rd2 written), a tensor map over the first one (%rd3), a number.
%r1 is the thread, %rd4 its word of the output. Every kernel runs to its end as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from tests.emulator.fuzz.bodies import BODIES
from tests.emulator.goldens import probe

WORDS = 4096
HEAD = """.version 9.0
.target sm_100a
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 args);
.global .align 8 .b8 text[24] = {116, 61, 37, 100, 32, 37, 102, 10, 0};
.const .align 4 .b32 table[4] = {1, 2, 3, 4};
.shared .align 8 .b64 bars[4];
.shared .align 1024 .b8 tile[8192];
.func (.param .b32 result) twice (.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; add.s32 %a, %a, %a; st.param.b32 [result], %a; ret; }
.visible .entry k(.param .u64 source, .param .u64 target, .param .align 64 .b8 map[128], .param .u32 number)
{
.reg .pred %p<12>; .reg .b16 %h<12>; .reg .b32 %r<40>; .reg .b64 %rd<24>; .reg .f32 %f<12>; .reg .f64 %d<6>;
.reg .b128 %q<4>;
.local .align 16 .b8 stack[64];
ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target]; mov.b64 %rd3, map; ld.param.u32 %r2, [number];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd2, %rd4; setp.eq.u32 %p1, %r1, 0;
mov.u32 %r3, bars; mov.u32 %r4, tile;
"""


@dataclass(frozen=True)
class Seed:
    """One kernel and how it is launched. `given` None: the common signature; else a number for every parameter that is
    the address of a buffer, and the bytes of any other. `fill` of the buffers: `noise`, `rows` (offsets of 16-byte
    rows), `sparse` (legal metadata) or `zero`."""

    name: str
    text: str
    entry: str = "k"
    block: int = 32
    grid: int = 1
    cluster: int = 1
    given: tuple[int | bytes, ...] | None = None
    fill: str = "noise"


GROUPS = (("mma", 9, "sparse"), ("mma2", 6, "sparse"), ("warp", 4, "rows"), ("mbar", 6, "zero"), ("map", 2, "zero"))
"""Groups of captured kernels: every how many-th is taken, and what its buffers hold."""


@cache
def written() -> list[Seed]:
    """The kernels of `bodies.py`."""
    made = []
    for name, (body, block, cluster) in BODIES.items():
        made.append(Seed(name, f"{HEAD}{body.strip()}\n}}\n", block=block, cluster=cluster))
    return [replace(s, grid=3) if s.name == "work queue" else s for s in made]


def _kernel(group: str, entry: str) -> str:
    text = bytes(probe.member(f"ptx/{group}")).decode()
    start = text.index(f".visible .entry {entry}(")
    end = text.find("\n.visible .entry", start + 1)
    return text[: text.index(".visible .entry")] + text[start : end if end > 0 else None]


@cache
def captured() -> list[Seed]:
    """Kernels that ran on an H200, of each group every few: mma and wgmma, warp and mbarrier instructions."""
    made = []
    for group, step, fill in GROUPS:
        module = probe.module(group)
        for entry in list(module.functions)[::step]:
            text = _kernel(group, entry)
            given = tuple(
                bytes(p.nbytes) if p.nbytes != 8 or p.name.startswith("d") else WORDS
                for p in module.functions[entry].parameters
            )
            block = 128 if "wgmma" in text else 1 if group == "mbar" else 32
            cluster = 2 if entry.startswith("cl") else 1
            made.append(Seed(f"{group}/{entry}", text, entry, block, 1, cluster, given, fill))
    return made
