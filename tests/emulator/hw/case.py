"""A kernel that runs on a GPU and on the emulator, and what it leaves behind on either."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import emulator
from emulator.errors import EmulatorError
from emulator.memory.globals import GlobalMemory
from emulator.memory.im2col import Im2col
from emulator.memory.tensormap import TensorMap, element_type

POLICIES = ("in_order", "latest", "random")
FILL = 0xCC
"""What outputs hold before the launch."""

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<12>; .reg .b16 %h<24>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .f32 %f<24>; .reg .f64 %d<12>;\n"
    ".reg .b128 %q<6>;\n"
)


@dataclass(frozen=True, eq=False)
class In:
    """An input buffer."""

    data: np.ndarray


@dataclass(frozen=True, eq=False)
class Out:
    """A buffer that comes back; it holds `start`, or FILL."""

    nbytes: int
    start: np.ndarray | None = None

    def bytes(self) -> np.ndarray:
        """The bytes before the launch."""
        held = np.full(self.nbytes, FILL, np.uint8)
        if self.start is not None:
            raw = np.ascontiguousarray(self.start).view(np.uint8).ravel()
            held[: raw.size] = raw
        return held


@dataclass(frozen=True)
class Map:
    """A tensor map over argument `of`: element type, extents, byte strides of dimensions 1 upwards, box, element
    strides, swizzle 0..3, NaN fill and interleave 0..2, as cuTensorMapEncodeTiled takes them. With `pixels` an im2col
    map, as cuTensorMapEncodeIm2col takes it: box[0] channels, `lower` and `upper` corners."""

    of: int
    kind: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    nan_fill: bool = False
    interleave: int = 0
    pixels: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def encode(self, address: int) -> bytes:
        """The 128 bytes as the emulator makes them."""
        steps = self.steps or (1,) * len(self.dims)
        kind = element_type(self.kind)
        made = TensorMap(
            address,
            kind,
            self.dims,
            self.strides,
            self.box,
            steps,
            interleave=self.interleave,
            swizzle=self.swizzle,
            nan_fill=self.nan_fill,
            im2col=Im2col(self.lower, self.upper, self.pixels) if self.pixels else None,
        )
        return made.encode()


Argument = In | Out | Map | int
"""An integer is a 32-bit parameter."""


@dataclass(frozen=True, eq=False)
class Case:
    """`arguments` become the parameters p0, p1, … of entry `k`; `before` stands ahead of it. `loose` names outputs (by
    position among the outputs) -> byte offsets of words that are not compared, addresses for example. `policies` of the
    emulator under which the words must be equal: all, unless the kernel itself looks at what is a matter of time.
    `prints`: what it prints is compared too."""

    name: str
    body: str
    arguments: tuple[Argument, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    before: str = ""
    prints: bool = False
    note: str = ""
    loose: dict[int, tuple[int, ...]] = field(default_factory=dict)
    policies: tuple[str, ...] = POLICIES

    @property
    def text(self) -> str:
        """The PTX module."""
        kinds = {In: ".u64", Out: ".u64", Map: ".align 64 .b8", int: ".u32"}
        declared = ", ".join(
            f".param {kinds[type(a)]} p{k}{'[128]' if isinstance(a, Map) else ''}" for k, a in enumerate(self.arguments)
        )
        return f"{HEAD}{self.before}\n.visible .entry k({declared})\n{{\n{REGISTERS}{self.body}\n}}\n"

    @property
    def digest(self) -> str:
        """Changes with everything that the words depend on; not with how the text is broken into lines."""
        state = hashlib.sha256(" ".join(self.text.split()).encode())
        for a in self.arguments:
            state.update(a.data.tobytes() if isinstance(a, In) else a.bytes().tobytes() if isinstance(a, Out) else b"")
            state.update(repr(a if isinstance(a, (Map, int)) else "").encode())
        state.update(repr((self.grid, self.block, self.cluster)).encode())
        return state.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Result:
    """`outputs`: uint8 arrays in the order of the `Out` arguments; `printed` text; `error`: empty, the name of a CUDA
    error, or that of an EmulatorError with its message."""

    outputs: list[np.ndarray]
    printed: str = ""
    error: str = ""


def emulate(case: Case, **settings: Any) -> Result:
    """The case on the emulator. An EmulatorError becomes the result's error; nothing else is caught."""
    memory = GlobalMemory()
    regions: dict[int, Any] = {}
    for k, a in enumerate(case.arguments):
        if isinstance(a, (In, Out)):
            raw = a.bytes() if isinstance(a, Out) else np.ascontiguousarray(a.data).view(np.uint8).ravel()
            regions[k] = memory.allocate(raw.size, f"argument {k}")
            regions[k].views[1][:] = raw
    parameters = []
    for k, a in enumerate(case.arguments):
        if isinstance(a, Map):
            parameters.append(a.encode(regions[a.of].address))
        elif isinstance(a, int):
            parameters.append((a & 0xFFFFFFFF).to_bytes(4, "little"))
        else:
            parameters.append(regions[k].address.to_bytes(8, "little"))
    settings = {"arithmetic": "exact", "watchdog": 3_000_000, **settings}
    error, printed = "", ""
    try:
        launch = emulator.run(
            emulator.parse(case.text), "k", case.grid, case.block, parameters, memory, cluster=case.cluster, **settings
        )
        printed = launch.output
    except EmulatorError as wrong:
        error = f"{type(wrong).__name__}: {wrong}"
    outputs = [regions[k].views[1].copy() for k, a in enumerate(case.arguments) if isinstance(a, Out)]
    return Result(outputs, printed, error)


def differences(case: Case, words: Result, other: Result) -> list[str]:
    """What differs between two results that should be equal bit for bit, as lines of text."""
    found = []
    if words.error or other.error:
        return [f"{case.name}: {words.error or 'ran'}; {other.error or 'ran'}"] if words.error != other.error else []
    for k, (a, b) in enumerate(zip(words.outputs, other.outputs, strict=True)):
        differ = a != b
        for offset in case.loose.get(k, ()):
            differ[offset : offset + 4] = False
        if differ.any():
            at = int(np.flatnonzero(differ)[0]) // 4 * 4
            found.append(
                f"{case.name}: output {k}, {int(differ.sum())} bytes differ, first at {at}: "
                f"{a[at : at + 16].view(np.uint32)} and {b[at : at + 16].view(np.uint32)}"
            )
    if words.printed != other.printed:
        found.append(f"{case.name}: printed {words.printed!r} and {other.printed!r}")
    return found
