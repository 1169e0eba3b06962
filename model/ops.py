"""Which operation runs on a kernel and which on its oracle: one table, filled from what the gates have proven.

A kernel takes an oracle's place if this project has one for the operation, if it serves the architecture and the model,
and if all its gates are proven there now. Anything else runs the oracle, and the table says why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from rich.table import Table

from model import reference
from model.config import Config
from model.packs import Bound
from model.weights import Weights

GATES: dict[str, tuple[str, ...]] = {
    "embed": ("embedding",),
    "mhc_pre": ("mhc_pre_rmsnorm_quantize",),
    "mhc_post": ("mhc_post",),
    "qkv_projection": ("multi_linear", "nvfp4_linear", "qk_norm_rope"),
    "append": ("cache_append",),
    "compressor_project": ("compressor_idle",),
    "compress": ("compressor_csa",),
    "index_queries": ("nvfp4_linear", "rope"),
    "index_key": ("indexer_logits",),
    "index_scores": ("indexer_logits",),
    "index_topk": ("indexer_topk",),
    "attention": ("fmha_decode",),
    "output_projection": ("rope", "grouped_linear", "nvfp4_linear"),
    "route": ("router",),
    "routed_experts": ("moe_nvfp4",),
    "shared_expert": ("multi_linear", "nvfp4_linear"),
    "hc_head": ("hc_head",),
    "logits": ("nvfp4_linear",),
    "mtp_combine": ("nvfp4_linear",),
}
"""Every operation of the model, in the order of a layer, and the gates that a kernel for it must pass. A kernel made of
other parts names its own."""

STORING = ("mhc_pre", "qkv_projection", "output_projection", "shared_expert", "logits", "mtp_combine")
"""Operations that store inputs of linears, in one of the forms of `reference.Stored`."""


@dataclass(frozen=True)
class Given:
    """What a kernel decides by whether it can take an operation's place in a model: `dtype` of activations, and how
    they are `stored` where linears read them."""

    config: Config
    weights: Weights
    dtype: torch.dtype
    stored: reference.Stored = "plain"


@dataclass(frozen=True)
class Kernel:
    """A kernel that can take an operation's place.

    arches    sm90, sm100
    bind      from `Bound` to a function with the signature of the oracle's, but for `stored`
    gates     all that must be proven
    refuses   why it cannot serve a model, empty if it can
    note      what to know of it, for the table
    storing   further gates by the form in which inputs of linears are stored
    """

    op: str
    arches: tuple[str, ...]
    bind: Callable[[Bound], Callable[..., Any]]
    gates: tuple[str, ...]
    refuses: Callable[[Given], str] = lambda given: ""
    note: str = ""
    storing: Mapping[reference.Stored, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One line of the table: where an operation runs, and why there."""

    op: str
    gate: str
    source: Literal["kernel", "oracle"]
    why: str


class Ops:
    """The table. Operations are attributes: `ops.mhc_pre(streams, hc, weight, config)`; signatures are those of
    `model.reference`, with `stored` already said."""

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], rows: tuple[Row, ...], bound: Bound | None = None
    ) -> None:
        self._functions = dict(functions)
        self.rows = rows
        self.bound = bound

    def __getattr__(self, name: str) -> Callable[..., Any]:
        functions = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"no operation {name!r}; there are {', '.join(functions)}")
        function: Callable[..., Any] = functions[name]
        return function

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @classmethod
    def oracles(cls, why: str = "asked for", *, stored: reference.Stored = "plain") -> Ops:
        """Every operation on its oracle."""
        functions = {op: _oracle(op, stored) for op in GATES}
        return cls(functions, tuple(Row(op, ", ".join(gates), "oracle", why) for op, gates in GATES.items()))

    @classmethod
    def from_ledger(
        cls,
        arch: str,
        ledger: Mapping[str, Any],
        *,
        backend: Callable[[], Any] = lambda: None,
        kernels: tuple[Kernel, ...] = (),
        given: Given | None = None,
        without: str = "no kernel yet",
    ) -> Ops:
        """Kernels where `ledger` (gate name to bool, or to an object with `proven`) has their gates proven on `arch`.

        `kernels` are those to choose from; of several for an operation the last one that may run does. One that refuses
        what is `given` does not, and the row says why. `backend` makes what they run on, once and only if there is one.
        `without`: why an operation has no kernel at all.
        """
        unknown = sorted({k.op for k in kernels} - set(GATES))
        if unknown:
            raise ValueError(f"kernels for {', '.join(unknown)}; allowed: {', '.join(GATES)}")
        stored: reference.Stored = "plain" if given is None else given.stored
        found = {op: _choice(op, arch, ledger, kernels, given, without) for op in GATES}
        bound = Bound(backend(), stored) if any(kernel for kernel, _ in found.values()) else None
        functions = {
            op: _oracle(op, stored) if kernel is None or bound is None else kernel.bind(bound)
            for op, (kernel, _) in found.items()
        }
        return cls(functions, tuple(row for _, row in found.values()), bound)

    def replaced(self, **functions: Callable[..., Any]) -> Ops:
        """The same table with other functions for some operations (for experiments and tests)."""
        unknown = sorted(set(functions) - set(GATES))
        if unknown:
            raise ValueError(f"operations {', '.join(unknown)}; allowed: {', '.join(GATES)}")
        return Ops(self._functions | functions, self.rows, self.bound)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Operations that run on kernels."""
        return tuple(row.op for row in self.rows if row.source == "kernel")

    @property
    def packed_nbytes(self) -> int:
        """Bytes of weights in the kernels' layouts, as far as they have been used."""
        return 0 if self.bound is None else self.bound.packs.nbytes

    def table(self) -> Table:
        """The table for a terminal."""
        table = Table(
            "operation",
            "runs on",
            "gate",
            "why",
            title=f"{len(self.kernels)} of {len(self.rows)} operations on kernels",
        )
        for row in self.rows:
            table.add_row(row.op, row.source, row.gate, row.why)
        return table

    def __str__(self) -> str:
        width = max(len(row.op) for row in self.rows)
        return "\n".join(f"{row.op:<{width}}  {row.source:<6}  {row.gate}: {row.why}" for row in self.rows)


def _choice(
    op: str, arch: str, ledger: Mapping[str, Any], kernels: tuple[Kernel, ...], given: Given | None, without: str
) -> tuple[Kernel | None, Row]:
    """The kernel that runs an operation, None for the oracle, and the row that says why."""
    stored: reference.Stored = "plain" if given is None else given.stored
    of_op = [k for k in kernels if k.op == op]
    here = [k for k in of_op if arch in k.arches] or of_op[-1:]
    refusals: list[str] = []
    for kernel in reversed(here):
        why = _why_not(kernel, arch, ledger, given)
        if why:
            refusals.append(why)
            continue
        gates = _gates(kernel, stored)
        why = "; ".join(filter(None, (f"proven on {arch}", kernel.note, *refusals)))
        return kernel, Row(op, ", ".join(gates), "kernel", why)
    gates = _gates(here[-1], stored) if here else GATES[op]
    return None, Row(op, ", ".join(gates), "oracle", "; ".join(dict.fromkeys(refusals)) or without)


def _oracle(op: str, stored: reference.Stored) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(reference, op)
    return functools.partial(function, stored=stored) if op in STORING else function


def _gates(kernel: Kernel, stored: reference.Stored) -> tuple[str, ...]:
    return (*kernel.gates, *kernel.storing.get(stored, ()))


def _why_not(kernel: Kernel, arch: str, ledger: Mapping[str, Any], given: Given | None) -> str:
    """Why not this kernel; empty if it may run."""
    if arch not in kernel.arches:
        return f"the kernel is for {', '.join(kernel.arches)}, not {arch}"
    refusal = "" if given is None else kernel.refuses(given)
    if refusal:
        return refusal
    entries = {gate: ledger.get(gate, False) for gate in _gates(kernel, "plain" if given is None else given.stored)}
    if not entries:
        return "no kernel in it where inputs of linears are stored as they are"
    missing = [gate for gate, entry in entries.items() if not getattr(entry, "proven", entry)]
    verb = "is" if len(missing) == 1 else "are"
    return f"{', '.join(missing)} {verb} not proven on {arch}" if missing else ""
