"""Time of parsing PTX, per instruction, at three sizes: a straight line means linear time."""

from __future__ import annotations

import statistics
import time

import emulator

REPEATS = 5
LINES = (
    "mov.b64 %rd{a}, {{%r{a}, %r{b}}};",
    "fma.rn.f32x2 %rd{a}, %rd{b}, %rd{a}, %rd{b};",
    "mov.b64 {{%r{a}, %r{b}}}, %rd{a};",
    "ex2.approx.ftz.f32 %r{a}, %r{b};",
    "@%p{a} bra L{a};",
    "ld.shared.v4.b32 {{%r{a}, %r{b}, %r{a}, %r{b}}}, [%r{b}+16];",
)


def kernel(instructions: int) -> str:
    """A kernel of about that many instructions in the mix of a compiled softmax."""
    body = [LINES[i % len(LINES)].format(a=i % 90, b=(i * 7) % 90) for i in range(instructions)]
    labels = [f"L{k}: ret;" for k in range(90)]
    registers = ".reg .pred %p<90>; .reg .b32 %r<90>; .reg .b64 %rd<90>;"
    text = "\n".join([registers, *body, *labels])
    return f".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{{\n{text}\n}}\n"


def main() -> None:
    """Median of five runs each."""
    for size in (1_000, 4_000, 16_000):
        text = kernel(size)
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            emulator.parse(text)
            times.append(time.perf_counter() - started)
        median = statistics.median(times)
        print(f"{size:6d} instructions  {median * 1e3:7.1f} ms   {median / size * 1e6:5.2f} us each")
