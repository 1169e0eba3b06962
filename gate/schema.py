"""The shape of `gates.yaml`: strict pydantic models, and the JSON Schema that editors read.

A model knows nothing of line numbers; `gate.load` maps the paths of its errors back to the file.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from gate.errors import did_you_mean
from gate.status import REJECTIONS

Arch = Literal["sm90", "sm100"]
State = Literal["planned", "building", "gated"]

NAME = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
CaseId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$")]

_COUNT = re.compile(r"^<=\s*(\d+)$")


def _count(value: Any) -> Any:
    """`3` (exactly) or `"<= 3"` (at most)."""
    exact = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if exact or (isinstance(value, str) and _COUNT.match(value)):
        return value
    raise ValueError(f"must be a count (0, 1, …) or '<= n', got {value!r}")


Count = Annotated[
    Any,
    BeforeValidator(_count),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _COUNT.pattern}]}),
]


def count_allows(limit: int | str, measured: int) -> bool:
    """Whether `measured` obeys `limit`, which is an exact count or the text `<= n`."""
    if isinstance(limit, int):
        return measured == limit
    match = _COUNT.match(limit)
    return match is not None and measured <= int(match.group(1))


def _rejections(value: Any) -> Any:
    """One status or a list of them, as a list."""
    listed = value if isinstance(value, list) else [value]
    bad = [v for v in listed if v not in REJECTIONS]
    if bad or not listed:
        word = str(bad[0]) if bad else "[]"
        hint = did_you_mean(word, REJECTIONS)
        raise ValueError(f"'{word}' is no status of a rejected mutant{hint}; allowed: {', '.join(REJECTIONS)}")
    return listed


Rejections = Annotated[
    list[str],
    BeforeValidator(_rejections),
    WithJsonSchema(
        {
            "oneOf": [
                {"enum": list(REJECTIONS)},
                {"type": "array", "items": {"enum": list(REJECTIONS)}, "minItems": 1},
            ]
        }
    ),
]


def _field(value: Any) -> Any:
    """The value of a stage's own field: a scalar, or a list of scalars."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, bool | int | float | str | None):
            raise ValueError(f"must be a number, a text, true, false or a list of those, got {value!r}")
    return value


FieldValue = Annotated[
    Any,
    BeforeValidator(_field),
    WithJsonSchema({"type": ["boolean", "number", "string", "null", "array"]}),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Case(_Model):
    """One set of fields for `inputs(case, rng)`; the three counts override the gate's own for this case."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, FieldValue]

    id: CaseId
    launches: Count | None = None
    syncs: Count | None = None
    compiles: Count | None = None

    def fields(self) -> dict[str, Any]:
        """The fields that belong to the stage."""
        return dict(self.__pydantic_extra__)


class OutputLimits(_Model):
    """Limits of one output; all that are given must hold."""

    cos: float | None = Field(None, gt=0, le=1, description="smallest cosine with the oracle")
    diff: float | None = Field(None, ge=0, description="largest 1 - 2xy/(x^2+y^2)")
    vs_torch: float | None = Field(None, gt=0, description="largest diff, in units of what plain torch loses")
    rel_rms: float | None = Field(None, ge=0, description="largest rms(error) / rms(oracle)")
    max_abs: float | None = Field(None, ge=0, description="largest absolute error of any element")
    exact: Literal[True] | None = Field(None, description="every element equals the oracle rounded to the output dtype")
    against: Literal["ideal", "simulated"] = "ideal"

    def metrics(self) -> list[str]:
        """The limits that are set, in the order in which they are shown."""
        return [key for key in METRICS if getattr(self, key) is not None]


METRICS = ("diff", "vs_torch", "cos", "rel_rms", "max_abs", "exact")


class Memory(_Model):
    """Bytes that `run` may hold: the peak of one call, and the growth over `steps` further calls."""

    peak_bytes: int | None = Field(None, ge=0)
    growth_bytes: int | None = Field(None, ge=0)
    steps: int = Field(3, ge=1)


class Resources(_Model):
    """Upper bounds of what one kernel takes of a multiprocessor, as ptxas and the launch report it."""

    smem_bytes: int | None = Field(None, ge=0)
    tmem_columns: int | None = Field(None, ge=0)
    registers: int | None = Field(None, ge=0)
    spill_bytes: int | None = Field(None, ge=0)


class Roofline(_Model):
    """On a GPU: time of `run` over max(bytes / measured bandwidth, operations / measured rate) is at most `at_most`."""

    at_most: float = Field(gt=0)
    bytes: str = Field(description="arithmetic over the fields of the case")
    operations: str = Field(description="arithmetic over the fields of the case")


Floor = Literal["read", "copy"]
Us = Annotated[float, Field(gt=0)]


class BenchCase(_Model):
    """One size that --bench times: fields for `inputs(case, rng)`, and what replaces the block's own for this case."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, FieldValue]

    id: CaseId
    bytes: str | None = Field(None, description="what a call reads and writes: arithmetic over the fields of the case")
    floor: Floor | None = None
    at_most: float | None = Field(None, gt=0, description="largest time over the floor")
    at_most_us: float | None = Field(None, gt=0, description="largest time in microseconds")
    warm: list[Name] | None = None
    peers: dict[str, Us] = Field({}, description="microseconds that others' kernels took, by their name")

    def fields(self) -> dict[str, Any]:
        """The fields that belong to the stage."""
        return dict(self.__pydantic_extra__)


class Bench(_Model):
    """What --bench times on a GPU. A case's own `bytes`, `floor`, `at_most`, `at_most_us` and `warm` come first."""

    cases: list[BenchCase] = Field(min_length=1)
    bytes: str | None = Field(None, description="what a call reads and writes: arithmetic over the fields of the case")
    floor: Floor = Field("read", description="the floor is a cold read, or a copy, of as many bytes")
    at_most: float | None = Field(None, gt=0, description="largest time over the floor")
    at_most_us: float | None = Field(None, gt=0, description="largest time in microseconds")
    warm: list[Name] = Field([], description="inputs that the kernel before has just written: they stay in L2")
    canaries: Literal["linear", "grouped"] | None = Field(
        None, description="torch's own product of m, n, k (and weights), timed in the same run"
    )

    def of(self, case: BenchCase, key: str) -> Any:
        """`key` of the case, or of the block."""
        own = getattr(case, key)
        return getattr(self, key) if own is None else own


class Gate(_Model):
    """One gate. `planned` ones need a claim and nothing else; with cases and limits, --oracle-only judges them."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"state": {"const": "planned"}}, "required": ["state"]},
            "else": {"required": ["about", "cases", "limits"]},
        }
    )

    about: str = Field(min_length=8, max_length=80)
    group: Name | None = None
    stage: Name | None = None
    needs: list[Name] = []
    state: State = "gated"
    arch: list[Arch] = Field(default=["sm100", "sm90"], min_length=1)
    cases: list[Case] | None = Field(None, min_length=1)
    limits: dict[Name, OutputLimits] | None = Field(None, min_length=1)
    launches: Count | None = None
    syncs: Count | None = None
    compiles: Count | None = None
    memory: Memory | None = None
    resources: Resources | None = None
    roofline: Roofline | None = None
    bench: Bench | None = None
    falsified_by: dict[Name, Rejections] = {}
    seeds: list[int] | None = Field(None, min_length=1)
    repeat: int | None = Field(None, ge=1)
    timeout_s: float | None = Field(None, gt=0)


class Defaults(_Model):
    """What a gate that says nothing gets."""

    seeds: Annotated[list[int], Field(min_length=1)] = [0, 1]
    repeat: Annotated[int, Field(ge=1)] = 3
    timeout_s: Annotated[float, Field(gt=0)] = 120


class GatesFile(_Model):
    """The whole of `gates.yaml`."""

    version: Literal[1]
    defaults: Defaults = Field(default_factory=Defaults)
    gates: dict[Name, Gate] = Field(min_length=1)


def json_schema() -> str:
    """The text of `gate/gates.schema.json`; a test holds the committed file equal to it."""
    return json.dumps(GatesFile.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
