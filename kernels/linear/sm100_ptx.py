"""Instructions of the block-scaled linear for which CuTe DSL has no operation of this form."""

from __future__ import annotations

from typing import Any

from cutlass import Boolean, Float32, Int32, Int64
from cutlass.cutlass_dsl import dsl_user_op

from kernels.shared.ptx import assembly

_VERSION = 1 << 46
_ROW_GROUP = 128 >> 4 << 32
"""Bytes from eight rows of 16 bytes to the next eight, in units of 16 (PTX, shared memory descriptor, SBO)."""


@dsl_user_op
def copy_scales(column: Int32, source: Int32, *, loc: Any = None, ip: Any = None) -> None:
    """An atom of scales, 32 rows of 16 contiguous bytes at shared address `source`, to four columns of tensor memory
    from `column` on, once into each quarter of the lanes. For one thread (PTX: tcgen05.cp.32x128b.warpx4)."""
    text = (
        "{ .reg .b64 d, a; .reg .b32 s; shr.b32 s, $1, 4; and.b32 s, s, 0x3FFF; cvt.u64.u32 a, s; "
        f"or.b64 d, a, {_VERSION | _ROW_GROUP}; tcgen05.cp.cta_group::1.32x128b.warpx4 [$0], d; }}"
    )
    assembly(text, [], [Int32(column), Int32(source)], loc, ip, effects=True)


@dsl_user_op
def store_bf16(address: Int64, value: Float32, wanted: Boolean, *, loc: Any = None, ip: Any = None) -> None:
    """A float to global memory as BF16, rounded to nearest even, if wanted."""
    text = "{ .reg .pred p; .reg .b16 h; setp.ne.s32 p, $2, 0; cvt.rn.bf16.f32 h, $1; @p st.global.b16 [$0], h; }"
    assembly(text, [], [Int64(address), Float32(value), Int32(wanted)], loc, ip, effects=True)
