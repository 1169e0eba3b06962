"""The map of tensor memory: 128 lanes down, columns across; whose field, written by whom, which values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.memory.tmem import COLUMNS, LANES, POISON
from emulator.views.elements import elements
from emulator.views.labels import Field, Labels, ViewError
from emulator.views.recording import Coordinates, Recording, recorded
from emulator.views.tensor_history import State
from emulator.views.view import View, short, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
SOURCES = ("never written", "tensor core", "tcgen05.st", "tcgen05.cp", "written")
"""What a word's last writer can be, in the order of `TmemMap.source`."""
_KIND = {"mma": 1, "st": 2, "cp": 3}
_UNKNOWN = 4


@dataclass(frozen=True, eq=False)
class TmemMap(View):
    """Tensor memory of one CTA at one moment.

    words uint32 [128, 512]; source uint8 [128, 512], an index into `SOURCES`; moved bool [128, 512], see
    `tensor_history.State`; writer int16 [128, 512], an index into `names` (how, who, where) or -1; allocated: (column,
    columns); `reference` another map to compare with, or None.
    """

    title: str
    words: NDArray[np.uint32]
    source: NDArray[np.uint8]
    moved: NDArray[np.bool_]
    labels: Labels
    allocated: tuple[tuple[int, int], ...]
    writer: NDArray[np.int16]
    names: tuple[tuple[str, str, str], ...]
    trips: tuple[str, ...] = ()
    reference: TmemMap | None = None

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Written since it was allocated."""
        return self.source > 0

    @property
    def shown(self) -> int:
        """Columns worth showing: everything allocated, named or written."""
        ends = [c + n for c, n in self.allocated] + [f.end for f in self.labels.fields]
        written = np.flatnonzero(self.defined.any(axis=0))
        used = max([f.end for f in self.labels.fields] + [int(written[-1]) + 1 if written.size else 0])
        # Of an allocation that is a power of two only the part in use is shown, with a margin.
        return min(COLUMNS, max(used, min(max(ends, default=32), used + 32), 32))

    @property
    def owner(self) -> NDArray[np.int16]:
        """Which field each word belongs to now, int16 [128, 512], an index into the fields or -1: of fields that lie
        over each other the one whose writer wrote last, else the first."""
        owner = np.full((LANES, COLUMNS), -1, np.int16)
        kinds = {1: "mma", 2: "st", 3: "cp"}
        for number, field in enumerate(self.labels.fields):
            part = owner[:, field.column : field.end]
            source = self.source[:, field.column : field.end]
            mine = part < 0
            if field.writer:
                code = next(k for k, name in kinds.items() if name == field.writer)
                mine |= source == code
            part[mine] = number
        return owner

    @property
    def values(self) -> NDArray[np.float64]:
        """One number a word, float64 [128, 512]: its value in the type of its owner (of packed elements the one of
        largest magnitude); NaN where never written. Words of no field are read as f32."""
        result = np.full((LANES, COLUMNS), np.nan)
        owner = self.owner
        for number, dtype in [(-1, "f32"), *((k, f.dtype) for k, f in enumerate(self.labels.fields))]:
            mine = owner == number
            if mine.any():
                result[mine] = _largest(elements(self.words[mine][:, None], dtype))
        result[~self.defined] = np.nan
        return result

    @property
    def differs(self) -> NDArray[np.bool_] | None:
        """Where the bits are others than the reference's, bool [128, 512]; a word that only one of them has written
        differs too."""
        if self.reference is None:
            return None
        other = self.reference
        return (self.words != other.words) | (self.defined != other.defined)

    def field(self, name: str, lanes: slice | None = None) -> Array:
        """A field as an array [128 lanes, elements]; narrow elements are unpacked, lowest first."""
        found = self.labels.field(name)
        return elements(self.words[lanes or slice(None), found.column : found.end], found.dtype)

    def aliases(self) -> list[tuple[Field, Field]]:
        """Pairs of fields that share columns."""
        fields = self.labels.fields
        return [(a, b) for k, a in enumerate(fields) for b in fields[k + 1 :] if a.column < b.end and b.column < a.end]

    def twins(self) -> list[tuple[str, str]]:
        """Fields of the same shape and type that hold the same bits everywhere, and some value at all: two tiles of
        different data should not."""
        found = []
        fields = [f for f in self.labels.fields if self._holds(f)]
        for k, a in enumerate(fields):
            for b in fields[k + 1 :]:
                alike = (a.columns, a.dtype) == (b.columns, b.dtype) and a.column != b.column
                if alike and np.array_equal(self._words(a), self._words(b)) and np.ptp(self._words(a)) > 0:
                    found.append((a.name, b.name))
        return found

    def _words(self, field: Field) -> NDArray[np.uint32]:
        return self.words[:, field.column : field.end]

    def _holds(self, field: Field) -> bool:
        """Whether every word of the field is its own now."""
        number = self.labels.fields.index(field)
        return bool((self.owner[:, field.column : field.end] == number).all() and self.defined[:, field.column].all())

    # ---------------------------------------------------------------- text
    def text(self) -> str:
        """Fields with who owns and who wrote their words; what lies over what; what went wrong."""
        lines = [self.title, ""]
        head = ["field", "columns", "type", "owns", "defined", "values", "last written by"]
        rows = [self._row(number, field) for number, field in enumerate(self.labels.fields)]
        rest = self._rest()
        lines += table(head, rows + ([rest] if rest else []))
        lines += [f"allocated: {_spans(self.allocated)}", *self.remarks()]
        return "\n".join(lines)

    def _row(self, number: int, field: Field) -> list[str]:
        part = slice(field.column, field.end)
        mine = self.owner[:, part] == number
        defined = self.defined[:, part]
        return [
            field.name,
            f"{field.column}..{field.end - 1}",
            field.dtype,
            _percent(mine & defined),
            _percent(defined),
            self.range_of(field),
            self._by(self.writer[:, part][mine & defined]),
        ]

    def range_of(self, field: Field) -> str:
        """`-3.1..2.8` over the words that the field owns; empty if it owns none."""
        mine = (self.owner == self.labels.fields.index(field)) & self.defined
        if not mine.any():
            return ""
        numbers = elements(self.words[mine][:, None], field.dtype).astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        odd = "" if finite.size == numbers.size else f", {numbers.size - finite.size} not finite"
        return (f"{finite.min():.3g}..{finite.max():.3g}" if finite.size else "") + odd

    def _rest(self) -> list[str] | None:
        covered = np.zeros(COLUMNS, bool)
        for field in self.labels.fields:
            covered[field.column : field.end] = True
        rest = self.defined & ~covered
        if not rest.any():
            return None
        columns = np.flatnonzero(rest.any(axis=0))
        spread = f"{columns[0]}..{columns[-1]}"
        return ["(no field)", spread, "-", "-", _percent(rest[:, columns]), "", self._by(self.writer[rest])]

    def _by(self, writers: NDArray[np.int16]) -> str:
        groups: dict[tuple[str, str], list[str]] = {}
        for verb, who, place in [self.names[w] for w in np.unique(writers) if w >= 0]:
            groups.setdefault((verb, place), []).append(who)
        parts = [f"{verb} {', '.join(sorted(set(who)))} ({place})" for (verb, place), who in groups.items()]
        return "; ".join(parts) or "nobody"

    def remarks(self) -> list[str]:
        """Sentences about what a reader should notice; empty if there is nothing."""
        found = []
        for a, b in self.aliases():
            first, last = max(a.column, b.column), min(a.end, b.end) - 1
            found.append(f"{a.name} and {b.name} share columns {first}..{last}")
        for a_name, b_name in self.twins():
            found.append(f"{a_name} and {b_name} hold the same bits: two tiles of different data should not")
        if self.moved.any():
            columns = np.flatnonzero(self.moved.any(axis=0))
            found.append(
                f"{int(self.moved.sum())} words in columns {columns[0]}..{columns[-1]} were stored by another thread "
                "than the one that had loaded them: as a round trip this is not the identity"
            )
            found += [f"  {trip}" for trip in self.trips]
        if self.differs is not None:
            found += self._differences()
        return found

    def _differences(self) -> list[str]:
        differs = self.differs
        assert differs is not None
        owner = self.owner
        shares = [
            f"{field.name} {_percent(differs[owner == number])}" for number, field in enumerate(self.labels.fields)
        ]
        return [f"words that differ from the reference: {', '.join(shares) or _percent(differs)}"]

    def figure(self) -> Figure:
        """Fields, last writer, values, and with a reference where they differ."""
        from emulator.views.tmem_figure import draw

        return draw(self)


def tmem_map(
    given: Any,
    fields: Any = None,
    *,
    cta: Coordinates | None = None,
    step: int | None = None,
    reference: Any = None,
) -> TmemMap:
    """The map of tensor memory.

    given: a Recorder or Recording (its CTA `cta`, at `step` or at the end), a CTA of the machine, or a stop of
    `emulator.debug`, which has one. fields: {name: (column, columns, dtype[, writer])}, by default the recording's.
    reference: the same of another run: words that differ are marked. Raises ViewError for a CTA without tensor memory
    or a moment that is not recorded.
    """
    made = _map(given, fields, cta, step)
    if reference is None:
        return made
    other = reference if isinstance(reference, TmemMap) else _map(reference, fields, cta, step)
    return TmemMap(**{**made.__dict__, "reference": other})


def _map(given: Any, fields: Any, cta: Coordinates | None, step: int | None) -> TmemMap:
    tensor = getattr(given, "tensor", None)
    if tensor is not None and not callable(tensor) and hasattr(tensor, "words"):
        labels = Labels.of(fields)
        source = np.where(tensor.words != POISON, _UNKNOWN, 0).astype(np.uint8)
        title = f"Tensor memory of CTA {getattr(given, 'coordinates', '')}"
        unknown = np.where(source > 0, 0, -1).astype(np.int16)
        moved = np.zeros((LANES, COLUMNS), bool)
        held = tuple(sorted(tensor.allocations.items()))
        return TmemMap(
            title, tensor.words.copy(), source, moved, labels, held, unknown, (("somebody", "unknown", "not recorded"),)
        )
    recording, record = recorded(given, cta)
    if record.tensor is None:
        raise ViewError(f"{recording.kernel}: CTA {record.coordinates} has no tensor memory: it never allocated any")
    labels = recording.labels if fields is None else Labels.of(fields, dict(recording.labels.roles))
    state = record.tensor.at(step)
    now = "at the end" if recording.ended else f"after step {recording.steps}, where it stands"
    when = now if step is None else f"after step {step} of {recording.steps}"
    return TmemMap(
        f"Tensor memory of {short(recording.kernel)}, CTA {record.coordinates}, {when}",
        state.words,
        _sources(state),
        state.moved,
        labels,
        state.allocated,
        state.writer,
        tuple(_writer(recording, w) for w in state.writers),
        _trips(recording, record.tensor.trips),
    )


def _trips(recording: Recording, trips: dict[tuple[int, int], int]) -> tuple[str, ...]:
    places: dict[tuple[str, str], int] = {}
    for (load, store), count in trips.items():
        key = recording.lines[load].place, recording.lines[store].place
        places[key] = places.get(key, 0) + count
    return tuple(f"{count} times a word: loaded at {a}, stored at {b}" for (a, b), count in places.items())


def _sources(state: State) -> NDArray[np.uint8]:
    codes = np.array([_KIND.get(w.kind, _UNKNOWN) for w in state.writers] + [0], np.uint8)
    return codes[state.writer]


def _writer(recording: Recording, writer: Any) -> tuple[str, str, str]:
    role = recording.labels.role(writer.warp) or f"warp {writer.warp}"
    verb = {"mma": "tensor core for", "st": "tcgen05.st of", "cp": "tcgen05.cp of"}[writer.kind]
    return verb, role, recording.lines[writer.index].place


def _largest(values: Array) -> NDArray[np.float64]:
    numbers = values.astype(np.float64)
    pick = np.nanargmax(np.where(np.isnan(numbers), -1.0, np.abs(numbers)), axis=-1)
    return np.take_along_axis(numbers, pick[..., None], -1)[..., 0]


def _percent(mask: Array) -> str:
    share = float(mask.mean()) if mask.size else 0.0
    whole = round(100 * share)
    return f"{min(max(whole, 1), 99) if 0 < share < 1 else whole} %"


def _spans(blocks: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"columns {c}..{c + n - 1}" for c, n in blocks) or "nothing"
