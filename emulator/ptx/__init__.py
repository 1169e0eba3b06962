"""PTX as data: `parse` makes a `Module` of a text, `print_module` a text of a `Module`."""

from emulator.ptx.module import (
    Address,
    Function,
    Imm,
    Instruction,
    Label,
    LabelList,
    Module,
    Not,
    Operand,
    Pair,
    Parameter,
    Prototype,
    Reg,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)
from emulator.ptx.parser import parse
from emulator.ptx.printer import print_module
from emulator.ptx.types import TYPES, ScalarType

__all__ = [
    "TYPES",
    "Address",
    "Function",
    "Imm",
    "Instruction",
    "Label",
    "LabelList",
    "Module",
    "Not",
    "Operand",
    "Pair",
    "Parameter",
    "Prototype",
    "Reg",
    "ScalarType",
    "Sink",
    "Special",
    "Symbol",
    "TensorAddress",
    "Variable",
    "Vector",
    "parse",
    "print_module",
]
