"""Source operands as typed values: the same rules for every builder."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.ptx.module import Address, Imm, Instruction, Not, Operand, Reg, Special, Symbol
from emulator.ptx.types import TYPES

WIDTH = {"pred": 1, "f16": 16, "f32": 32, "f64": 64} | {f"{k}{n}": n for k in "us" for n in (8, 16, 32, 64)}

_AXES = "ntid ctaid nctaid cluster_ctaid cluster_nctaid clusterid nclusterid tid"
SPECIALS = frozenset(
    [f"{name}.{axis}" for name in _AXES.split() for axis in "xyz"]
    + "laneid lanemask_eq lanemask_lt lanemask_le lanemask_ge lanemask_gt warpid nwarpid smid nsmid gridid".split()
    + "cluster_ctarank cluster_nctarank is_explicit_cluster dynamic_smem_size total_smem_size aggr_smem_size".split()
    + "clock clock64 globaltimer globaltimer_lo".split()
)
"""The special registers that the machine has values for."""


class Sources:
    """Reads operands through the operations of a builder, which the subclass provides."""

    const: Any
    special: Any
    symbol: Any
    read: Any
    bits: Any
    resize: Any
    add: Any
    cmp: Any
    not_: Any

    def source(self, operand: Operand, type: str) -> Any:
        """A source operand as a value of `type`: registers are reinterpreted, narrowed or extended by PTX's rules
        (operand may be wider than the instruction type; narrower registers extend by their own signedness)."""
        if isinstance(operand, Reg):
            return self._register_source(operand, type)
        if isinstance(operand, Imm):
            return self._immediate(operand, type)
        if isinstance(operand, Special):
            if operand.name not in SPECIALS:
                raise Unsupported(f"special register %{operand.name} is not implemented")
            value = self.special(operand.name)
            if type == "pred":
                return self.cmp("ne", value, self.const(value.type, 0))
            return self.bits(self.resize(value, f"u{WIDTH[type]}"), type)
        if isinstance(operand, Symbol):
            return self.bits(self.symbol(operand.name, f"u{WIDTH[type]}"), type)
        if isinstance(operand, Address):
            base = self.source(operand.base, f"u{WIDTH[type]}")
            total = self.add(base, self.const(base.type, operand.offset)) if operand.offset else base
            return self.bits(total, type)
        if isinstance(operand, Not) and type == "pred":
            return self.not_(self.source(operand.operand, "pred"))
        raise Unsupported(f"operand {operand} cannot be a source of type {type}")

    def operand(self, instruction: Instruction, index: int, type: str) -> Any:
        """Operand `index` of the instruction as a source of `type`."""
        if index >= len(instruction.operands):
            raise Unsupported(f"operand {index + 1} is missing")
        return self.source(instruction.operands[index], type)

    def _register_source(self, reg: Reg, type: str) -> Any:
        value = self.read(reg)
        if (type == "pred") != (reg.type == "pred"):
            raise Unsupported(f"register {reg.name} of type {reg.type} used as {type}")
        if type == "pred" or value.type == type:
            return value
        width = TYPES[reg.type].bits
        if width != WIDTH[type]:
            kind = "s" if TYPES[reg.type].kind == "s" else "u"
            value = self.resize(self.bits(value, f"{kind}{width}"), f"u{WIDTH[type]}")
        return self.bits(value, type)

    def _immediate(self, imm: Imm, type: str) -> Any:
        if imm.width == 0 and type in ("f16", "f32", "f64"):
            raise Unsupported(f"integer literal {imm.text} where a {type} is needed")
        if imm.width == 64 and type == "f32":
            return self.const("f32", int(np.uint64(imm.bits).view(np.float64).astype(np.float32).view(np.uint32)))
        if imm.width == 32 and type == "f64":
            return self.const("f64", int(np.uint32(imm.bits).view(np.float32).astype(np.float64).view(np.uint64)))
        return self.const(type, imm.bits)
