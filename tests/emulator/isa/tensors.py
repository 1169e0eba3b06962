"""Small kernels around tensor copies: one warp, tensor maps in memory, a barrier, a shared tile."""

from __future__ import annotations

from typing import Any

import numpy as np

import emulator
from emulator.memory.globals import GlobalMemory, Region
from emulator.memory.tensormap import TensorMap, element_type

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
TILE_BYTES = 4096
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p5, [%r6], 0; @!%p5 bra W;"
"""%r5 = tile, %r6 = barrier; lane 0 initialises it."""


class Bench:
    """Named arrays in memory; `maps` describes tensors over them."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.memory = GlobalMemory()
        self.regions: dict[str, Region] = {}
        for name, array in arrays.items():
            self.add(name, array)

    def add(self, name: str, array: np.ndarray) -> Region:
        """Memory with a copy of the array."""
        region = self.memory.allocate(array.nbytes, name)
        region.views[1][:] = np.ascontiguousarray(array).view(np.uint8).ravel()
        self.regions[name] = region
        return region

    def map(self, name: str, kind: str, dims: tuple[int, ...], box: tuple[int, ...], **more: Any) -> TensorMap:
        """A tensor map over a dense array."""
        element = element_type(kind)
        strides, size = [], dims[0] * element.bits // 8
        for dim in dims[1:]:
            strides.append(size)
            size *= dim
        steps = (1,) * len(dims)
        return TensorMap(self.regions[name].address, element, dims, tuple(strides), box, steps, **more)

    def run(self, body: str, *parameters: str | bytes, cluster: int = 1, grid: int | None = None, **more: Any) -> Any:
        """Run a body. Parameters are names of regions (their address, as %rd1, %rd2, …) or the bytes of tensor maps
        (their generic address)."""
        declared, loads, values = [], [], []
        for k, given in enumerate(parameters, 1):
            if isinstance(given, bytes):
                declared.append(f".param .align 128 .b8 p{k}[128]")
                loads.append(f"mov.b64 %rd{k}, p{k}; cvta.param.u64 %rd{k}, %rd{k};")
                values.append(given)
            else:
                declared.append(f".param .u64 p{k}")
                loads.append(f"ld.param.u64 %rd{k}, [p{k}];")
                values.append(self.regions[given].address.to_bytes(8, "little"))
        text = f"""{HEADER}.visible .entry kernel({", ".join(declared)}) {{
.shared .align 1024 .b8 tile[{TILE_BYTES}]; .shared .align 8 .b8 bar[16]; .shared .align 128 .b8 spare[256];
.reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .b128 %q<4>;
mov.u32 %r1, %tid.x; mov.u32 %r5, tile; mov.u32 %r6, bar; setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r6], 1; fence.mbarrier_init.release.cluster;
{"barrier.cluster.arrive; barrier.cluster.wait;" if cluster > 1 else "bar.sync 0;"}
{" ".join(loads)}
{body}
ret; }}"""
        size = grid or cluster
        more.setdefault("policy", "latest")
        return emulator.run(
            emulator.parse(text),
            "kernel",
            (size, 1, 1),
            (32, 1, 1),
            values,
            self.memory,
            cluster=(cluster, 1, 1),
            **more,
        )

    def array(self, name: str, dtype: Any) -> np.ndarray:
        """What is in memory now."""
        return self.regions[name].views[1].view(dtype)


def dump(nbytes: int, target: str = "%rd2") -> str:
    """Copy the start of the tile to memory."""
    return f"""mov.u32 %r20, 0;
D: mad.lo.u32 %r21, %r1, 4, %r20; add.u32 %r22, %r5, %r21; ld.shared.u32 %r23, [%r22]; cvt.u64.u32 %rd30, %r21;
add.s64 %rd30, {target}, %rd30; st.global.u32 [%rd30], %r23; add.u32 %r20, %r20, 128; setp.lt.u32 %p6, %r20, {nbytes};
@%p6 bra D;"""
