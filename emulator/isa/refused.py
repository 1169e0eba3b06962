"""Instructions of sm_90 and sm_100 that the emulator knows by name and refuses, each with the reason.

Whatever is neither registered nor listed here is refused as well, as unknown.
"""

from __future__ import annotations

from emulator.isa.table import refuse

_FIGURES = "the layout of its metadata in tensor memory is published in figures only, and no hardware words of it exist"

refuse(r"tcgen05\.mma(\.ws)?\.sp\..*", _FIGURES)
refuse(
    r"tcgen05\.shift\..*|tcgen05\.mma\..*\.ashift.*",
    "which row is the last one, and what it receives, is not documented",
)
refuse(
    r"tcgen05\.ld\.red\.sync\.aligned\.16x32bx2\..*",
    "whether the two halves of a lane are reduced together is not documented",
)
refuse(
    r"cp\.(reduce\.)?async\.bulk\.(prefetch\.)?tensor\..*\.im2col::w(::128)?(\..*)?",
    "how the pixels of these modes run has not been measured: they exist on sm_100 only",
)
refuse(r"(multimem)\..*", "multicast memory objects need several GPUs")
refuse(r"wmma\..*", "the layout of its fragments in registers is not documented; compilers emit mma.sync")
refuse(
    r"mma\.sync\.aligned\.m8n8k4\.(row|col)\..*",
    "this Volta shape computes four products with a fragment layout of its own; no current compiler emits it",
)
refuse(
    r"mma\.(sync|sp|sp::ordered_metadata)\..*\.kind::.*",
    "block-scaled and narrow mma.sync exists on sm_120 only",
)
refuse(r"(tex|tld4|txq|suld|sust|sured|suq|istypep)\..*", "textures and surfaces are not modelled")
refuse(r"(alloca|stacksave|stackrestore)(\..*)?", "the stack of a thread is not modelled")
refuse(r"(v(add|sub|absdiff|min|max|set|shl|shr|mad)[24]?)\..*", "video instructions: no compiler emits them any more")
refuse(r"fma\..*\.oob(\..*)?", "what .oob does with an out-of-bounds NaN has not been measured")
refuse(
    r"cvt\.rs\..*|cvt\..*\.s2f6x2\..*",
    "which of the shared random bits, or which scale, an element takes is published in figures only",
)
refuse(r"atom\..*b128.*|atom\..*\.v[248]\..*", "128-bit and vector atomics with a result are not implemented")
refuse(r"ldu\..*", "deprecated; compilers emit ld.global.nc")
refuse(r"(shfl|vote)\.(up|down|bfly|idx|all|any|uni|ballot)\..*", "removed from PTX for sm_70 and later: use .sync")
refuse(
    r"(red|st)\.async\.(mmio\.)?release\..*|(red|st)\.async\..*\.global\..*",
    "nothing tells when such an operation on global memory has completed",
)
refuse(
    r"isspacep\.(const|global|local|param.*)",
    "global, local, constant and parameter memory share one range of addresses here",
)
refuse(r"cvta\..*\.u32", "generic addresses have 64 bits")
