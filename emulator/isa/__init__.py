"""The instruction set: importing this package registers every family in the opcode table."""

from emulator.isa import (
    async_copy,
    atomics,
    barrier,
    bits,
    bulk,
    compare,
    control,
    convert,
    data,
    floating,
    integer,
    logic,
    mbarrier,
    memory,
    tcgen05,
    tensor_copy,
    warp,
)
from emulator.isa.table import forms, lookup

__all__ = [
    "async_copy",
    "atomics",
    "barrier",
    "bits",
    "bulk",
    "compare",
    "control",
    "convert",
    "data",
    "floating",
    "forms",
    "integer",
    "logic",
    "lookup",
    "mbarrier",
    "memory",
    "tcgen05",
    "tensor_copy",
    "warp",
]
