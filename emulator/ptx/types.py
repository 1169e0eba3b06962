"""The scalar types of PTX: widths and kinds, nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScalarType:
    """`bits` wide; `kind` is one of b (untyped), u, s, f, p (predicate)."""

    name: str
    bits: int
    kind: str

    @property
    def bytes(self) -> int:
        """Size in memory; a predicate has none."""
        return self.bits // 8


def _table() -> dict[str, ScalarType]:
    types = {f"{kind}{bits}": (bits, kind) for kind in "bus" for bits in (8, 16, 32, 64)}
    types |= {"b128": (128, "b"), "b1024": (1024, "b"), "pred": (1, "p")}
    types |= {"f16": (16, "f"), "bf16": (16, "f"), "f32": (32, "f"), "f64": (64, "f"), "tf32": (32, "f")}
    types |= {"f16x2": (32, "f"), "bf16x2": (32, "f"), "f32x2": (64, "f"), "u16x2": (32, "u"), "s16x2": (32, "s")}
    types |= {"texref": (64, "b"), "samplerref": (64, "b"), "surfref": (64, "b")}
    return {name: ScalarType(name, bits, kind) for name, (bits, kind) in types.items()}


TYPES: dict[str, ScalarType] = _table()
