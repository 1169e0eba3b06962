"""Changing a tensor map in memory, and publishing one (PTX ISA 9.7.9.28, 9.7.13.16)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.errors import IllegalInstruction
from emulator.isa.memory import address_of, is_shared, shared_memory
from emulator.isa.operands import arity, immediate
from emulator.isa.table import Modifiers, op
from emulator.isa.telling import tell_access, tell_step
from emulator.isa.warplike import WarpLike, first_lane, whole_warp
from emulator.memory.shared import split_address
from emulator.memory.spaces import SHARED_WINDOW
from emulator.memory.tensormap import NBYTES, replace_field
from emulator.ptx.module import Instruction

_SPACE = "[.space:global|shared|shared::cta]"
_ALIGN = 64


@op(
    f"tensormap.replace.tile.field:global_address{_SPACE}.b1024.type:b64",
    f"tensormap.replace.tile.field:rank{_SPACE}.b1024.type:b32",
    f"tensormap.replace.tile.field:box_dim|global_dim|element_stride{_SPACE}.b1024.type:b32",
    f"tensormap.replace.tile.field:global_stride{_SPACE}.b1024.type:b64",
    "tensormap.replace.tile.field:elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode"
    f"{_SPACE}.b1024.type:b32",
    section="9.7.9.28",
)
def replace(b: Any, i: Instruction, m: Modifiers) -> None:
    """Replace one field of a tensor map; the other bits stay."""
    field = m["field"]
    ordinal = 0
    if field in ("box_dim", "global_dim", "global_stride", "element_stride"):
        arity(i, 3)
        given = immediate(i.operands[1])
        if given is None:
            raise Unsupported(f"the ordinal of {field} must be an integer literal")
        ordinal = given
    else:
        arity(i, 2)
    value = b.operand(i, len(i.operands) - 1, f"u{m['type'][1:]}")
    b.effect(_replace, address_of(b, i.operands[0], m["space"]), value, m["space"], field, ordinal)


def _map_at(warp: WarpLike, address: int, shared: bool, what: str) -> tuple[np.ndarray, str, int, int]:
    """The 128 bytes in place, their space, offset or address, and rank."""
    if not shared and address < SHARED_WINDOW:
        raw, space, place, rank = warp.memory.view(address, NBYTES, write=True, what=what), "global", address, 0
    else:
        rank, place = split_address(int(warp.shared(np.array([address], np.uint64))[0]) if not shared else address)
        raw, space = shared_memory(warp, rank).bytes(place, NBYTES, what), "shared"
    if place % _ALIGN:
        raise IllegalInstruction(f"{what} at {place:#x}: the address must be a multiple of {_ALIGN}")
    return raw, space, place, rank


def _replace(
    warp: WarpLike,
    mask: np.ndarray,
    address: np.ndarray,
    value: np.ndarray,
    space: str | None,
    field: str,
    ordinal: int,
) -> None:
    for lane in np.flatnonzero(mask).tolist():
        raw, kind, place, rank = _map_at(warp, int(address[lane]), is_shared(space), "tensormap.replace")
        raw[:] = np.frombuffer(replace_field(raw, field, ordinal, int(value[lane])), np.uint8)
        warp.progress()
        if warp.bus.on:
            tell_access(warp, kind, "write", np.array([place]), NBYTES, rank, np.array([lane]))


@op(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope:cta|cluster|gpu|sys.sync.aligned",
    section="9.7.13.16",
    starts_block=True,
)
def publish(b: Any, i: Instruction, m: Modifiers) -> None:
    """Copy a tensor map from shared to global memory and release it to the tensor-map proxy."""
    arity(i, 3)
    if immediate(i.operands[2]) != NBYTES:
        raise Unsupported(f"size {i.operands[2]}; the only size is {NBYTES}")
    target, source = address_of(b, i.operands[0], "global"), address_of(b, i.operands[1], "shared")
    b.blocking(_publish, target, source, i.opcode, out="pred")


def _publish(
    warp: WarpLike, mask: np.ndarray, target: np.ndarray, source: np.ndarray, opcode: str
) -> np.ndarray | None:
    if whole_warp(warp, mask, "tensormap.cp_fenceproxy") is None:
        return None
    lane = first_lane(mask)
    raw, _, place, rank = _map_at(warp, int(source[lane]), True, "tensormap.cp_fenceproxy")
    into, _, address, _ = _map_at(warp, int(target[lane]), False, "tensormap.cp_fenceproxy")
    into[:] = raw
    warp.progress()
    if warp.bus.on:
        for space, kind, where, owner in (("shared", "read", place, rank), ("global", "write", address, 0)):
            tell_access(warp, space, kind, np.array([where]), NBYTES, owner)
        tell_step(warp, opcode, (warp.cta.rank, 0), mask=mask)
    return mask
