"""Which operation runs on a kernel and which on its oracle: one table, filled from what the gates have proven.

A kernel takes an oracle's place if this project has one for the operation, if it serves the architecture, and if its
gate is proven there now. Anything else runs the oracle, and the table says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table

from model import reference

GATES: dict[str, str] = {
    "embed": "embedding",
    "mhc_pre": "mhc_pre_rmsnorm_quantize",
    "mhc_post": "mhc_post",
    "rms_norm": "rmsnorm_quantize",
    "q_projection": "qk_norm_rope",
    "kv_projection": "qk_norm_rope",
    "append": "cache_append",
    "compressor_project": "compressor_idle",
    "compress": "compressor_csa",
    "index_queries": "indexer_logits",
    "index_key": "indexer_logits",
    "index_scores": "indexer_logits",
    "index_topk": "indexer_topk",
    "attention": "fmha_decode",
    "output_projection": "grouped_linear",
    "route": "router",
    "routed_experts": "moe_nvfp4",
    "shared_expert": "shared_expert",
    "hc_head": "hc_head",
    "logits": "lm_head",
    "mtp_combine": "mtp_tiny",
}
"""Every operation of the model, in the order of a layer, and the gate that proves a kernel for it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that can take an operation's place. `bind(backend)` gives a function with the signature of the
    oracle's."""

    op: str
    arches: tuple[str, ...]
    bind: Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True)
class Row:
    """One line of the table: where an operation runs, and why there."""

    op: str
    gate: str
    source: Literal["kernel", "oracle"]
    why: str


class Ops:
    """The table. Operations are attributes: `ops.mhc_pre(streams, hc, config)`; signatures are those of
    `model.reference`."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], rows: tuple[Row, ...]) -> None:
        self._functions = dict(functions)
        self.rows = rows

    def __getattr__(self, name: str) -> Callable[..., Any]:
        functions = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"no operation {name!r}; there are {', '.join(functions)}")
        function: Callable[..., Any] = functions[name]
        return function

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @classmethod
    def oracles(cls, why: str = "asked for") -> Ops:
        """Every operation on its oracle."""
        functions = {op: getattr(reference, op) for op in GATES}
        return cls(functions, tuple(Row(op, gate, "oracle", why) for op, gate in GATES.items()))

    @classmethod
    def from_ledger(
        cls, arch: str, ledger: Mapping[str, Any], *, backend: Any = None, kernels: tuple[Kernel, ...] = ()
    ) -> Ops:
        """Kernels where `ledger` (gate name to bool, or to an object with `proven`) has their gate proven on `arch`.

        `kernels` are those to choose from; the last one of an operation wins.
        """
        known = {k.op: k for k in kernels}
        unknown = sorted(set(known) - set(GATES))
        if unknown:
            raise ValueError(f"kernels for {', '.join(unknown)}; allowed: {', '.join(GATES)}")
        functions, rows = {}, []
        for op, gate in GATES.items():
            kernel, entry = known.get(op), ledger.get(gate, False)
            proven = bool(getattr(entry, "proven", entry))
            why = _why(kernel, arch, gate, proven)
            if kernel is not None and not why:
                functions[op] = kernel.bind(backend)
                rows.append(Row(op, gate, "kernel", f"{gate} passes on {arch}"))
            else:
                functions[op] = getattr(reference, op)
                rows.append(Row(op, gate, "oracle", why))
        return cls(functions, tuple(rows))

    def replaced(self, **functions: Callable[..., Any]) -> Ops:
        """The same table with other functions for some operations (for experiments and tests)."""
        unknown = sorted(set(functions) - set(GATES))
        if unknown:
            raise ValueError(f"operations {', '.join(unknown)}; allowed: {', '.join(GATES)}")
        return Ops(self._functions | functions, self.rows)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Operations that run on kernels."""
        return tuple(row.op for row in self.rows if row.source == "kernel")

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


def _why(kernel: Kernel | None, arch: str, gate: str, proven: bool) -> str:
    """Why not the kernel; empty if it may run."""
    if kernel is None:
        return "no kernel yet"
    if arch not in kernel.arches:
        return f"the kernel is for {', '.join(kernel.arches)}, not {arch}"
    return "" if proven else f"{gate} is not proven on {arch}"
