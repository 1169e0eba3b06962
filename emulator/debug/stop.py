"""A launch that is standing still: registers, shared and tensor memory, tensors, barriers, warps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.debug.errors import BadBreakpoint, LeftBehind
from emulator.debug.layout import byte_offsets
from emulator.memory.tmem import COLUMNS, LANES
from emulator.ptx.registers import registers_of
from emulator.ptx.types import TYPES
from emulator.views.elements import elements, width
from emulator.views.labels import Labels

if TYPE_CHECKING:
    from emulator.machine.cta import Cta
    from emulator.machine.warp import Warp
    from emulator.ptx.module import Instruction, Reg
    from emulator.views.recording import Recording

Array = NDArray[Any]
_NAMES = {"float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16", "float8_e4m3fn": "e4m3",
          "float8_e5m2": "e5m2", "float8_e8m0fnu": "ue8m0", "bool": "u8"}  # fmt: skip


_ELEMENT = {name: name for name in ("f16", "bf16", "f32", "f64", "s16", "s32", "s64", "u16", "u32", "u64")}
_ELEMENT |= {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
"""Types that an opcode may name, and the elements to show."""


class Stop:
    """Where a launch stands: `warp` of `cta` is about to execute (or, after a barrier or an MMA, has just executed)
    `instruction`; `reason` says why it stopped, `step` counts warp-instructions so far.

    All arrays are copies. A stop can be asked until the launch goes on; then it raises LeftBehind.
    """

    def __init__(self, grid: Any, warp: Warp, index: int, mask: Array, reason: str, step: int, owner: Any) -> None:
        self._grid = grid
        self._warp = warp
        self._owner = owner
        self._live = True
        self.index = index
        self.mask = mask.copy()
        self.reason = reason
        self.step = step

    def leave(self) -> None:
        """The launch goes on."""
        self._live = False

    def _check(self) -> None:
        if not self._live:
            raise LeftBehind(f"this stop ({self.reason}) is over: the launch has gone on")

    # ---------------------------------------------------------------- where
    @property
    def kernel(self) -> str:
        """The entry."""
        return str(self._grid.program.function.name)

    @property
    def instruction(self) -> Instruction:
        """The static instruction."""
        found: Instruction = self._grid.program.function.instructions[self.index]
        return found

    @property
    def warp(self) -> int:
        """The warp's index in its CTA."""
        return self._warp.index

    @property
    def cta(self) -> tuple[int, int, int]:
        """The CTA's coordinates in the grid."""
        return self._warp.cta.coordinates

    @property
    def labels(self) -> Labels:
        """The names that the debugger was given."""
        given: Labels = self._owner.labels
        return given

    @property
    def recording(self) -> Recording:
        """What was recorded so far: every view takes a stop (`views.tmem_map(stop)`)."""
        self._check()
        found: Recording = self._owner.recorder.recording
        return found

    def text(self) -> str:
        """Reason and place."""
        i = self.instruction
        source = f" ({i.loc[0]}:{i.loc[1]})" if i.loc else ""
        return (
            f"{self.kernel}: {self.reason}, after {self.step} warp-instructions\n"
            f"CTA {self.cta}, {self.labels.warp(self.warp)}, {_lanes(int(self.mask.sum()))}, "
            f"PTX line {i.line}{source}: {i.text}"
        )

    __str__ = __repr__ = text

    def warps(self) -> str:
        """A line for each warp of the CTA: where it is and what it waits for."""
        self._check()
        program, lines = self._grid.program, []
        for w in self._warp.cta.warps:
            block = w.block if w.groups is None else min(g.block for g in w.groups)
            if w is self._warp:
                place, state = self.instruction, "here"
            elif w.done or block >= program.exit_block:
                lines.append(f"{self.labels.warp(w.index)}: has ended")
                continue
            else:
                place = program.function.instructions[program.starts[block]]
                state = f"waits for {w.waiting}" if w.waiting else "can go on"
            lines.append(f"{self.labels.warp(w.index)}: PTX line {place.line}, {state}")
        return "\n".join(lines)

    # ---------------------------------------------------------------- registers
    def register(self, name: str, lane: int | None = None, dtype: str | None = None, warp: int | None = None) -> Any:
        """A register by its PTX name: all 32 lanes, or one number with `lane`. dtype (f32, s32, bf16, f16, …; bool for
        predicates without) reads its bits as another type; packed ones give [32, n]. Inline assembly that uses a name
        again makes it name$2, name$3, …; the plain name means the one in the current instruction, else the first."""
        self._check()
        slot, declared = self._slot(name)
        raw = self._find_warp(warp).registers[slot]
        values = self._typed(raw, declared, dtype)
        if lane is None:
            return values.copy()
        if not 0 <= lane < 32:
            raise BadBreakpoint(f"lane={lane}; allowed: 0..31")
        return values[lane]

    def registers(self, lane: int = 0) -> dict[str, Any]:
        """What the current instruction names, in one lane: {register: value}, in the types of its opcode."""
        i = self.instruction
        types = [t for t in i.opcode.split(".") if t in _ELEMENT]
        written = {r.name for r in registers_of(i.operands[0])} if len(types) > 1 and i.operands else set()
        found = {}
        for reg in dict.fromkeys(self._named()):
            type = types[0 if reg.name in written else -1] if types else ""
            fits = type in TYPES and reg.type != "pred" and TYPES[reg.type].bits == TYPES[type].bits
            found[reg.name] = self.register(reg.name, lane, _ELEMENT[type] if fits else None)
        return found

    def _named(self) -> list[Reg]:
        i = self.instruction
        own = [i.guard] if i.guard is not None else []
        return own + [r for operand in i.operands for r in registers_of(operand)]

    def _slot(self, name: str) -> tuple[int, str]:
        function = self._grid.program.function
        for reg in self._named():
            if name in (reg.name, reg.name.partition("$")[0]):
                return reg.slot, reg.type
        if name not in function.register_names:
            stem = name.rstrip("0123456789")
            alike = [n for n in function.register_names if n.rstrip("0123456789") == stem]
            known = f"{alike[0]} .. {alike[-1]} ({len(alike)})" if alike else ", ".join(function.register_names[:8])
            raise BadBreakpoint(f"{self.kernel} has no register {name!r}; it has {known}")
        slot = function.register_names.index(name)
        return slot, function.register_types[slot]

    @staticmethod
    def _typed(raw: Array, declared: str, dtype: str | None) -> Array:
        if declared == "pred":
            return raw
        if declared == "b128":
            return np.ascontiguousarray(raw.T)
        kind = dtype or (declared if declared[0] in "fsu" else f"u{TYPES[declared].bits}")
        if raw.itemsize % width(kind):
            raise BadBreakpoint(f"dtype={kind!r}: a register of {8 * raw.itemsize} bits; allowed: types that divide it")
        values = elements(np.ascontiguousarray(raw)[:, None], kind)
        return values[:, 0] if values.shape[1] == 1 else values

    def _find_warp(self, warp: int | None) -> Warp:
        warps = self._warp.cta.warps
        if warp is None:
            return self._warp
        if not 0 <= warp < len(warps):
            raise BadBreakpoint(f"warp={warp}; allowed: 0..{len(warps) - 1}")
        return warps[warp]

    # ---------------------------------------------------------------- memory
    def shared(
        self,
        start: int | str,
        shape: Any,
        stride: Any = None,
        dtype: str = "u32",
        swizzle: str = "none",
        rank: int | None = None,
    ) -> Array:
        """Shared memory through a layout, as an array with one dimension for each mode of `shape`.

        start: byte offset in the CTA, or the name of a shared variable. shape, stride: as CuTe prints them, nested or
        not, strides in elements; without stride row-major. swizzle: none, 32B, 64B or 128B. rank: another CTA of the
        cluster. Raises BadBreakpoint for a layout that leaves shared memory.
        """
        self._check()
        cta = self._find_cta(rank)
        first = self._variable(start) if isinstance(start, str) else start
        size = width(dtype)
        where = byte_offsets(first, shape, stride, size, swizzle)
        if where.size and (int(where.min()) < 0 or int(where.max()) + size > cta.shared.nbytes):
            span = f"bytes {int(where.min())}..{int(where.max()) + size - 1}"
            raise BadBreakpoint(f"shared({start}, {shape}, {stride}): {span}; the CTA has {cta.shared.nbytes}")
        raw = cta.shared.u8[where[..., None] + np.arange(size)]
        return elements(raw, dtype)[..., 0]

    def _variable(self, name: str) -> int:
        places = {n: at for n, (space, at) in self._grid.program.layout.places.items() if space == "shared"}
        if name not in places:
            raise BadBreakpoint(f"no shared variable {name!r}; variables: {', '.join(places) or 'none'}")
        return int(places[name])

    def _find_cta(self, rank: int | None) -> Cta:
        ctas = self._warp.cluster.ctas
        if rank is None:
            return self._warp.cta
        if not 0 <= rank < len(ctas):
            raise BadBreakpoint(f"rank={rank}; the cluster has CTAs 0..{len(ctas) - 1}")
        found: Cta = ctas[rank]
        return found

    def tensor(
        self,
        name: str | None = None,
        *,
        column: int | None = None,
        columns: int = 1,
        dtype: str = "f32",
        lanes: slice | None = None,
        rank: int | None = None,
    ) -> Array:
        """Tensor memory as [lanes, elements]: a named field, or `columns` from `column` on; narrow types are unpacked,
        the lowest bits first."""
        self._check()
        if name is not None:
            field = self.labels.field(name)
            column, columns, dtype = field.column, field.columns, field.dtype
        if column is None or column < 0 or columns < 1 or column + columns > COLUMNS:
            raise BadBreakpoint(f"tensor(column={column}, columns={columns}); allowed: inside 0..{COLUMNS - 1}")
        words = self._find_cta(rank).tensor.words[lanes or slice(0, LANES), column : column + columns]
        return elements(words.copy(), dtype)

    def global_tensor(self, name: str, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Array:
        """A registered tensor by the name in its memory region; shape and dtype are those it was registered with.
        A view with gaps between its elements needs a `shape` of its own, or comes as the flat memory that it spans."""
        self._check()
        regions = {r.name: r for r in self._grid.memory.regions}
        if name not in regions:
            raise BadBreakpoint(f"no tensor {name!r}; tensors: {', '.join(regions) or 'none'}")
        region = regions[name]
        kind = dtype or _NAMES.get(region.dtype, region.dtype.replace("uint", "u").replace("int", "s")) or "u8"
        values = elements(region.views[1].copy(), kind)
        wanted = region.shape if shape is None else shape
        if int(np.prod(wanted, dtype=np.int64)) == values.size:
            return values.reshape(wanted)
        if shape is None:
            return values
        raise BadBreakpoint(f"global_tensor({name!r}, shape={shape}): the tensor spans {values.size} {kind} elements")

    # ---------------------------------------------------------------- barriers
    def barriers(self, rank: int | None = None) -> str:
        """A line for each mbarrier of the CTA: name, phase, arrivals and bytes missing."""
        self._check()
        cta = self._find_cta(rank)
        names = self.labels.barrier_names(list(cta.mbarriers))
        return "\n".join(f"{names[offset]}: {cta.mbarriers[offset]}" for offset in sorted(cta.mbarriers))


def _lanes(count: int) -> str:
    return "1 lane" if count == 1 else f"{count} lanes"
