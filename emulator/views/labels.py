"""What a kernel's author calls things: fields of tensor memory, roles of warps, mbarriers and the pipelines they make.

The emulator knows columns, warp numbers and shared offsets only; a caller passes names, and views fall back to numbers
without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.errors import EmulatorError
from emulator.memory.tmem import COLUMNS

WRITERS = ("", "mma", "st", "cp")
"""Who fills a field: the tensor core, tcgen05.st, tcgen05.cp, or (empty) anybody."""

DTYPES = ("f32", "u32", "s32", "f16", "bf16", "e4m3", "e5m2", "ue8m0", "u8")
"""Element types of a field; narrow ones are packed into 32-bit columns, the first element in the lowest bits."""

_STAGE = re.compile(r"(?P<pipe>.+)\.(?P<side>full|empty)\[(?P<stage>\d+)\]")


class ViewError(EmulatorError):
    """A view was asked for something that does not exist; the message names what there is."""


@dataclass(frozen=True)
class Field:
    """Columns [column, column + columns) of tensor memory. `writer` (one of `WRITERS`) tells fields apart that lie over
    each other: the one whose writer wrote a word last owns it."""

    name: str
    column: int
    columns: int
    dtype: str = "f32"
    writer: str = ""

    @property
    def end(self) -> int:
        """One past the last column."""
        return self.column + self.columns


@dataclass(frozen=True)
class Pipeline:
    """`full` and `empty`: shared offsets of the mbarriers, one a stage."""

    name: str
    full: tuple[int, ...]
    empty: tuple[int, ...]


@dataclass(frozen=True)
class Labels:
    """Names for one kernel. `barriers`: names of all mbarriers of a CTA in the order of their addresses."""

    fields: tuple[Field, ...] = ()
    roles: tuple[tuple[int, str], ...] = ()
    barriers: tuple[str, ...] = ()

    @staticmethod
    def of(
        fields: Mapping[str, Sequence[object]] | None = None,
        roles: Mapping[int, str] | None = None,
        barriers: Sequence[str] | None = None,
    ) -> Labels:
        """Labels from plain values, checked.

        fields: {name: (column, columns, dtype)} or (column, columns, dtype, writer); dtype is one of `DTYPES`. roles:
        {warp: role}. barriers: names in the order of the addresses; `NAME.full[i]` and `NAME.empty[i]` make stage i of
        pipeline NAME. Raises ViewError naming the wrong entry and what is allowed.
        """
        made = tuple(_field(name, spec) for name, spec in (fields or {}).items())
        named = tuple(str(b) for b in barriers or ())
        doubles = sorted({b for b in named if named.count(b) > 1})
        if doubles:
            raise ViewError(f"barriers: {doubles[0]!r} is named twice; every mbarrier needs a name of its own")
        return Labels(made, tuple(sorted((int(w), str(r)) for w, r in (roles or {}).items())), named)

    def field(self, name: str) -> Field:
        """A field by name."""
        for field in self.fields:
            if field.name == name:
                return field
        raise ViewError(f"no tensor-memory field {name!r}; fields: {', '.join(f.name for f in self.fields) or 'none'}")

    def role(self, warp: int) -> str:
        """`mma`, or an empty text for a warp without a role."""
        return dict(self.roles).get(warp, "")

    def warp(self, warp: int) -> str:
        """`mma (8)`, or `warp 8`."""
        role = self.role(warp)
        return f"{role} ({warp})" if role else f"warp {warp}"

    def barrier_names(self, offsets: Sequence[int]) -> dict[int, str]:
        """Offset → name for the mbarriers of a CTA; by offset where the number of names is another."""
        ordered = sorted(offsets)
        if len(ordered) == len(self.barriers):
            return dict(zip(ordered, self.barriers, strict=True))
        return {offset: f"mbarrier {offset:#x}" for offset in ordered}

    def pipelines(self, offsets: Sequence[int]) -> list[Pipeline]:
        """Pipelines that the names of the barriers spell, in the order of their addresses."""
        stages: dict[str, dict[str, dict[int, int]]] = {}
        for offset, name in self.barrier_names(offsets).items():
            match = _STAGE.fullmatch(name)
            if match:
                sides = stages.setdefault(match["pipe"], {"full": {}, "empty": {}})
                sides[match["side"]][int(match["stage"])] = offset
        return [
            Pipeline(name, _in_order(sides["full"]), _in_order(sides["empty"]))
            for name, sides in stages.items()
            if sides["full"]
        ]


def _in_order(stages: dict[int, int]) -> tuple[int, ...]:
    return tuple(stages[stage] for stage in sorted(stages))


def _field(name: str, spec: Sequence[object]) -> Field:
    allowed = "(column, columns, dtype) or (column, columns, dtype, writer)"
    if isinstance(spec, Field):
        spec = (spec.column, spec.columns, spec.dtype, spec.writer)
    if isinstance(spec, str) or not isinstance(spec, Sequence) or not 2 <= len(spec) <= 4:
        raise ViewError(f"fields[{name!r}] = {spec!r}; allowed: {allowed}")
    column, columns = spec[0], spec[1]
    dtype = str(spec[2]) if len(spec) > 2 else "f32"
    writer = str(spec[3]) if len(spec) > 3 else ""
    inside = isinstance(column, int) and isinstance(columns, int) and column >= 0 and columns >= 1
    if not inside or column + columns > COLUMNS:  # type: ignore[operator]
        raise ViewError(f"fields[{name!r}]: column={column!r}, columns={columns!r}; allowed: inside 0..{COLUMNS - 1}")
    if dtype not in DTYPES:
        raise ViewError(f"fields[{name!r}]: dtype={dtype!r}; allowed: {', '.join(DTYPES)}")
    if writer not in WRITERS:
        raise ViewError(f"fields[{name!r}]: writer={writer!r}; allowed: {', '.join(map(repr, WRITERS))}")
    return Field(str(name), int(column), int(columns), dtype, writer)  # type: ignore[call-overload]
