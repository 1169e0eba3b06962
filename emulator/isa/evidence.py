"""What each form of the opcode table, and each layout, was checked against: the data of docs/emulator.md.

Tests hold the table against the captured words and the opcodes of real kernels, so it cannot claim what is not there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

H200, B200, KERNELS, DOCUMENTATION = "H200", "B200", "kernels", "documentation"

LEVELS = {
    H200: "checked on an H200: words captured there are reproduced bit for bit (or within the bound that is stated)",
    B200: "checked on B200 words: the arithmetic is; the layouts are only as good as the next line",
    KERNELS: "occurs in NVIDIA's own sample kernels, which check their results; a mistake on both sides of a copy "
    "would not show",
    DOCUMENTATION: "documentation only",
}
"""From the strongest to the weakest."""


@dataclass(frozen=True)
class Evidence:
    """Forms whose pattern begins like the regular expression `forms`; the first entry that matches counts."""

    forms: str
    level: str
    note: str = ""


# The alternatives of a form count as one: captured words of some of them are evidence for all.
TABLE = (
    # ---- memory, copies
    Evidence(r"st\.bulk", DOCUMENTATION),
    Evidence(r"(atom|red)\[\.sem", H200, "global, shared and distributed shared memory, with NaN and subnormals"),
    Evidence(r"red\.async", H200),
    Evidence(r"cp\.async\.bulk\.global\.shared::cta\.bulk_group\[\.L2::cache_hint\]$", KERNELS),
    Evidence(r"cp\.async\.bulk\.global\..*cp_mask", DOCUMENTATION),
    Evidence(r"cp\.async\.bulk\.prefetch\.L2", KERNELS, "no effect"),
    Evidence(r"cp\.async\.bulk\.prefetch", DOCUMENTATION, "no effect"),
    Evidence(r"cp\.async\.bulk\.tensor.*gather4", DOCUMENTATION),
    Evidence(r"cp\.async\.bulk\.tensor.*scatter4", DOCUMENTATION),
    Evidence(r"cp\.async\.bulk\.tensor.*\.group:.*L2::cache_hint$", DOCUMENTATION, "another order of the modifiers"),
    Evidence(r"cp\.async\.bulk\.tensor.*mbarrier", H200, "265 copies with stores; multicast and cta_group: in kernels"),
    Evidence(r"cp\.async\.bulk\.tensor.*bulk_group", H200, "with clipping at 16 bytes and faults"),
    Evidence(r"cp\.reduce\.async\.bulk\.tensor", H200, "31 reductions and the missing ones"),
    Evidence(r"(prefetch\[\.space:(global|local)|prefetchu|pmevent|applypriority|discard)", DOCUMENTATION, "no effect"),
    Evidence(r"(griddepcontrol|setmaxnreg|prefetch\[\.space:param)", KERNELS, "no effect"),
    Evidence(r"createpolicy", DOCUMENTATION, "the policy is 0"),
    Evidence(r"mov\.b128", KERNELS),
    Evidence(r"isspacep.*(global|local|param|const)", DOCUMENTATION),
    # ---- barriers and control
    Evidence(r"bar\[\.cta\]\.arrive", KERNELS),
    Evidence(r"bar\[\.cta\]\.red", DOCUMENTATION),
    Evidence(r"barrier\[\.cta\]\.(sync|arrive|red\.op:and)", KERNELS),
    Evidence(r"barrier\[\.cta\]\.red", DOCUMENTATION),
    Evidence(r"fence\.mbarrier_init|fence\.proxy\.async\[", H200, "no effect"),
    Evidence(r"fence\.proxy\.kind:tensormap.*acquire", H200, "no effect"),
    Evidence(r"fence\.proxy\.kind:tensormap", KERNELS, "no effect"),
    Evidence(r"(membar|fence)", DOCUMENTATION, "no effect: memory is sequentially consistent"),
    Evidence(r"clusterlaunchcontrol.*\.v4", DOCUMENTATION),
    Evidence(r"clusterlaunchcontrol", KERNELS, "the response has an encoding of our own; the hardware's is opaque"),
    Evidence(r"(trap|brkpt)", DOCUMENTATION),
    Evidence(r"call", H200, "functions of the module are expanded in place"),
    # ---- arithmetic
    Evidence(r"setp\..*type:f64\|bf16", DOCUMENTATION),
    Evidence(r"set\.rel.*dtype:(u16|u32.*type:(b16|s16|u16|f64))", DOCUMENTATION),
    Evidence(r"cvt\.pack", DOCUMENTATION),
    Evidence(r"cvt\.(sat:sat\.type|ftz\.type:f32\.f32)|cvt\[\.ftz\]\.sat:sat\.type:f32\.f32", DOCUMENTATION),
    Evidence(r"cvt\.rnd:rn\|rz\.relu:relu\.satfinite:satfinite\.tf32", DOCUMENTATION),
    Evidence(r"cvt.*ue8m0", DOCUMENTATION),
    Evidence(r"sub\[\.rnd:rn\|rz\|rm\|rp\](\[\.ftz\]\.type:f32x2|\.type:f64|\[\.sat\]\.f32\.half)", DOCUMENTATION),
    Evidence(r"(add|mul)\[\.rnd:rn\|rz\|rm\|rp\]\[\.ftz\]\.type:f32x2|add.*\.f32\.half", KERNELS),
    Evidence(r"fma.*(f32x2|\.f32\.half)", KERNELS),
    Evidence(r"mad\.rnd.*type:(f32|f64)", DOCUMENTATION),
    Evidence(r"(mad24\.hi\.sat|addc|subc|madc|cnot|lop3\.bool)", DOCUMENTATION),
    Evidence(r"not\.", KERNELS),
    Evidence(r"(ex2|tanh).*(f16|bf16)", H200, "complete tables of 65,536 words"),
    Evidence(r"(ex2|rcp|rsqrt|sqrt|lg2|tanh|sin|cos|div)\..*(approx|full)", H200, "within the documented error"),
    # ---- warps and matrices
    Evidence(r"redux.*f32", KERNELS),
    Evidence(r"ldmatrix.*b8x16", DOCUMENTATION),
    Evidence(r"ldmatrix.*m16n16", KERNELS, "NVIDIA's byte transposes"),
    Evidence(r"stmatrix.*m16n8", KERNELS, "NVIDIA's byte transposes"),
    Evidence(r"mma\.sp.*s32", DOCUMENTATION, "metadata as in the captured 8-bit floats"),
    Evidence(r"mma.*f64", DOCUMENTATION),
    Evidence(r"mma\.s.*", H200, "16 rows; m8n8 integer shapes follow the documentation"),
    Evidence(r"wgmma\.mma_async\.sp.*s32", DOCUMENTATION, "metadata as in the captured 8-bit floats"),
    Evidence(r"wgmma\.mma_async.*b1", DOCUMENTATION),
    Evidence(r"wgmma\.mma_async", H200, "N = 8 and 64; other N repeat the fragment"),
    # ---- tensor memory
    Evidence(r"tcgen05\.ld\.red", DOCUMENTATION, "sm_103a, sm_110a"),
    Evidence(r"tcgen05\.mma\.ws\.", DOCUMENTATION),
    Evidence(r"tcgen05\.mma", B200, "arithmetic; accumulator and operand layouts: kernels, .ws: documentation"),
    Evidence(r"tcgen05", KERNELS),
    Evidence(r"tensormap", H200, "every field, also values outside it; the bits of the map were captured"),
    Evidence(r"", H200),
)


def evidence_of(pattern: str) -> Evidence:
    """The entry of a form."""
    return next(e for e in TABLE if re.match(e.forms, pattern))


LAYOUTS = (
    ("wgmma matrix descriptor: start, LBO, SBO, swizzle, base offset; K- and MN-major", H200, "296 element maps"),
    ("register fragments of mma.sync and wgmma (A, B, D; 8-, 16- and 32-bit types)", H200, "all product forms"),
    ("sparse metadata of 16- and 32-bit types (8 codes a row) and 8-bit floats (16 codes)", H200, "44 sparse forms"),
    ("sparse metadata of the half-length shapes, of integers and of 4-bit types", DOCUMENTATION, "figures not seen"),
    ("ldmatrix, stmatrix, movmatrix of 16-bit elements", H200, ""),
    ("ldmatrix m16n16.b8, stmatrix m16n8.b8", KERNELS, ""),
    ("ldmatrix of packed 4- and 6-bit elements: low bits of a byte", DOCUMENTATION, "CUTLASS says the same"),
    ("tensor map: 128 bytes as the driver encodes them", H200, "237 maps"),
    ("swizzles of tensor copies: 32, 64, 128 bytes, 16-byte atoms", H200, ""),
    ("multicast: the same box in every CTA of the mask, each signalling its own mbarrier", H200, "5 kernels"),
    ("im2col maps: pixels, strides, offsets, corners, images; loads, stores, reductions", H200, "26 kernels"),
    ("interleaved maps: slices of 16 and 32 bytes", H200, "13 kernels"),
    ("128-byte swizzle with 32- or 64-byte atoms; 8-byte flip is refused", DOCUMENTATION, ""),
    ("padded 4- and 6-bit types of tensor copies", DOCUMENTATION, ""),
    ("mbarrier word, tokens, phases and byte counts", H200, "57 scripts"),
    ("shared::cluster addresses: rank << 24 | offset", H200, ""),
    ("tcgen05 matrix and instruction descriptors", KERNELS, ""),
    ("tensor memory: accumulators of 128 and 64 rows, one and two CTAs; A; scale factors", KERNELS, ""),
    ("tensor memory: accumulators of .ws", DOCUMENTATION, "halves and quarters of N"),
    ("tcgen05.ld / st: 32x32b, 16x256b, 16x128b", KERNELS, ""),
    ("tcgen05.ld / st: 16x64b, 16x32bx2, .pack / .unpack", DOCUMENTATION, ""),
    ("tcgen05.cp: 128x256b, 128x128b, 32x128b.warpx4, 64x128b.warpx2::01_23", KERNELS, ""),
    ("tcgen05.cp: 4x256b, 64x128b.warpx2::02_13", DOCUMENTATION, ""),
    ("cluster launch control response", DOCUMENTATION, "opaque: an encoding of our own"),
)
"""(layout, level, note)."""

EXCEPTIONS = (
    (
        "6 interleaved tensor copies of the archive",
        "they left the captured buffer; 13 others are compared word for word",
    ),
    ("live mbarrier words read by ld.shared", "stale on the hardware, and not compared: the state is not in memory"),
    ("byte count in 3 tokens", "a relaxed expect_tx just before had not been performed yet when the token was made"),
    ("lower half of mbarrier tokens", "left-over register contents on the hardware"),
    ("polls and order of arrivals in 7 cluster scripts", "matters of time"),
    ("22 approximate f32 and f64 functions", "held to their documented error: the hardware's tables are not public"),
    ("42 video and .oob forms", "refused by name"),
    ("15 f64 and fns forms", "compared where defined: one NaN operand, a base below 32"),
    ("wgmma.sp of 8-bit floats to f16", "no words were stored: held against the dense rule"),
    ("floor of f16 to f32, C through f16 to f16 and through e5m2 mma.sync", "no words were stored"),
)
"""(what of the captured words is not compared bit for bit, why)."""
