"""The emulator's two engines on the same work in one run: medians, ratios, translation, memory.

Figures of different machines cannot be compared; the ratios can. Attention, whose kernel is also the one that is
translated, needs torch and nvidia-cutlass-dsl and is left out without them.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import emulator
from benchmarks._gemm import Gemm
from emulator.memory.globals import GlobalMemory

REPEATS = 5
ENGINES = ("numpy", "llvm")


def _median(run: Callable[[], emulator.Launch]) -> tuple[float, int]:
    """Seconds of a launch, translation excluded, and its warp-instructions."""
    run()
    launches = [run() for _ in range(REPEATS)]
    return statistics.median(x.seconds for x in launches), launches[0].instructions


def _row(name: str, times: dict[str, tuple[float, int]]) -> None:
    cells = []
    for engine in ENGINES:
        seconds, instructions = times[engine]
        cells.append(f"{engine} {seconds * 1e3:9.2f} ms {instructions / seconds / 1e6:9.3f} M/s")
    rate = {e: times[e][0] / times[e][1] for e in ENGINES}
    print(f"{name:38s} {'   '.join(cells)}   ratio {rate['numpy'] / rate['llvm']:8.1f}")


# ---------------------------------------------------------------- arithmetic
def _loop(rounds: int) -> str:
    body = []
    for k in range(15):
        a, b = k % 8, (3 * k + 1) % 8
        body += [
            f"fma.rn.f32 %f{a}, %f{b}, %f{a}, %f{(a + 1) % 8};",
            f"add.u32 %r{a + 4}, %r{b + 4}, %r{a + 4};",
            f"xor.b32 %r{b + 4}, %r{a + 4}, 77;",
            f"mul.f32 %f{b}, %f{a}, 0f3F000000;",
        ]
    return f""".version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<3>; .reg .f32 %f<8>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0; cvt.rn.f32.u32 %f1, %r1;
L: {" ".join(body)}
add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {rounds}; @%p1 bra L;
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2; st.global.f32 [%rd1], %f1; ret;
}}"""


def _arithmetic() -> None:
    """Four warps in a loop of 63 instructions."""
    out = np.zeros(128, np.float32)
    memory = GlobalMemory()
    memory.register(out.ctypes.data, out.nbytes, "out")
    place = out.ctypes.data.to_bytes(8, "little")
    times = {}
    for engine, rounds in (("numpy", 200), ("llvm", 20_000)):
        module = emulator.parse(_loop(rounds))
        run = partial(emulator.run, module, "k", (1, 1, 1), (128, 1, 1), [place], memory, engine=engine)
        times[engine] = _median(run)
    _row("arithmetic, 4 warps", times)


# ---------------------------------------------------------------- kernels
def _gemm() -> None:
    gemm = Gemm(512, 512, 256)
    _row("GEMM 512 x 512 x 256 f16", {engine: _median(partial(gemm.run, engine)) for engine in ENGINES})
    print(f"{'':38s} largest error {gemm.error():.1e}")


def _attention(name: str, q: int, kv: int, heads: int, causal: bool) -> str:
    """Print the row; returns the PTX of the kernel."""
    import torch

    import backends
    from kernels.fmha import fmha

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tensors = [torch.randn(1, n, heads, 128).half() for n in (q, kv, kv)]
    times, sources = {}, []

    def emulate(module: Any, *arguments: Any, engine: str, **settings: Any) -> emulator.Launch:
        sources.append(module.source)
        return emulator.run(module, *arguments, engine=engine, **settings)

    for engine in ENGINES:
        backend: Any = backends.get("emulated", arch="sm_100a", run=partial(emulate, engine=engine))

        def run(backend: Any = backend) -> emulator.Launch:
            fmha(*tensors, causal=causal, backend=backend)
            return backend.last_launches[0]

        times[engine] = _median(run)
    _row(name, times)
    return sources[0]


# ---------------------------------------------------------------- translation
@contextmanager
def _own_cache() -> Iterator[None]:
    """An empty cache of native images."""
    before = os.environ.get("WORKBENCH_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WORKBENCH_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["WORKBENCH_CACHE"]
            else:
                os.environ["WORKBENCH_CACHE"] = before


def _translation(source: str) -> None:
    """A kernel whose image is not in the cache, and one whose image is. The comment makes them different kernels."""
    cold, warm = [], []
    with _own_cache():
        for k in range(REPEATS):
            for times in (cold, warm):
                module = emulator.parse(f"{source}\n// {k}\n")
                name = next(n for n, f in module.functions.items() if f.entry)
                started = time.perf_counter()
                emulator.translate(module, name)
                times.append(time.perf_counter() - started)
    count = len(module.functions[name].instructions)
    print(f"translation of {count} instructions: cold {statistics.median(cold) * 1e3:.0f} ms", end="")
    print(f", from the cache {statistics.median(warm) * 1e3:.1f} ms")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one row a workload."""
    _arithmetic()
    _gemm()
    if find_spec("torch") is None or find_spec("cutlass") is None:
        print("attention: needs torch and nvidia-cutlass-dsl")
        return
    import torch  # noqa: F401  the memory that it takes is not the emulator's

    loaded = _peak()
    source = _attention("attention q 256, kv 4096, d 128", 256, 4096, 1, False)
    _attention("causal attention, 4 heads, 1024, d 128", 1024, 1024, 4, True)
    _translation(source)
    print(f"peak memory of this process {_peak():.0f} MB; {loaded:.0f} MB before attention was compiled and run")
