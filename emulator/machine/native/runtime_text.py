"""Pieces of IR text that the functions of the runtime share."""

from __future__ import annotations

L32, L64, MASK = "<32 x i32>", "<32 x i64>", "<32 x i1>"
"""Vector types of lanes."""


def splat(name: str, kind: str, scalar: str) -> str:
    """`%name`: a scalar in all lanes."""
    vector = f"<32 x {kind}>"
    return f"""
  %{name}.one = insertelement {vector} poison, {kind} {scalar}, i64 0
  %{name} = shufflevector {vector} %{name}.one, {vector} poison, {L32} zeroinitializer"""


def field(name: str, base: str, offset: int, kind: str = "i64") -> str:
    """`%name`: a word of a structure; its place is `%name.at`."""
    return f"""
  %{name}.at = getelementptr i8, ptr %{base}, i64 {offset}
  %{name} = load {kind}, ptr %{name}.at"""


def lead() -> str:
    """`%lanes`: the mask as a predicate; `%lead`: the lowest lane of it."""
    return f"""
  %lanes = bitcast i32 %mask to {MASK}
  %lead.count = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %lead = and i32 %lead.count, 31"""
