"""A `Module` as PTX text that parses to an equal module (lines, source places and the source text aside).

Scopes are gone in a `Module`: names are unique in each function, so everything is declared at the top of its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    Reg,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)


def print_module(module: Module) -> str:
    """The text of a module, without comments, debug data and pragmas."""
    lines = [f".version {module.version}", f".target {module.target}", ".address_size 64", ""]
    lines += [_variable(v) for v in module.variables]
    # Declarations first: a body may call what is defined after it.
    lines += [_head(f, name) + ";" for name, f in module.functions.items() if f.extern or not f.entry]
    for name, function in module.functions.items():
        if name == function.name and not function.extern:
            lines += [_head(function, name), *_body(function)]
    lines += [f".alias {name}, {f.name};" for name, f in module.functions.items() if name != f.name]
    return "\n".join(lines) + "\n"


def _variable(v: Variable) -> str:
    if v.space == "param":
        return _parameter(v) + ";"
    size = "" if v.extern and not v.nbytes else v.nbytes
    text = f"{'.extern ' if v.extern else ''}.{v.space} .align {v.align} .b8 {v.name}[{size}]"
    if v.init is not None:
        text += " = {" + ", ".join(map(str, v.init)) + "}"
    return text + ";"


def _parameter(p: Parameter | Variable) -> str:
    """A scalar where the size allows it: a call passes registers to those alone."""
    if p.align == p.nbytes <= 8:
        return f".param .b{p.nbytes * 8} {p.name}"
    return f".param .align {p.align} .b8 {p.name}[{p.nbytes}]"


def _parameters(parameters: Iterable[Parameter]) -> str:
    return "(" + ", ".join(map(_parameter, parameters)) + ")"


def _head(function: Function, name: str) -> str:
    kind = ".entry" if function.entry else ".func"
    linkage = ".extern" if function.extern else ".visible"
    returns = _parameters(function.returns) + " " if function.returns else ""
    asked = "".join(f"\n.{key} {', '.join(map(str, values))}" for key, values in function.directives.items())
    return f"{linkage} {kind} {returns}{name} {_parameters(function.parameters)}{asked}"


def _registers(function: Function) -> Iterator[str]:
    """`.reg` lines that give every register its slot again."""
    names, types = function.register_names, function.register_types
    slot = 0
    while slot < len(names):
        base, _, part = names[slot].partition(".")
        if part:
            width = 4 if names[slot + 2 : slot + 3] == (f"{base}.z",) else 2
            yield f"\t.reg .v{width} .{types[slot]} {base};"
            slot += width
            continue
        start = slot
        # ptxas does not know `P1$1<6>` as P1$10 to P1$15: a stem ends with no digit.
        stem = names[slot][:-1] if names[slot][-1] == "0" and not names[slot][-2:-1].isdigit() else None
        while stem is not None and names[slot : slot + 1] == (f"{stem}{slot - start}",) and types[slot] == types[start]:
            slot += 1
        if slot - start > 1:
            yield f"\t.reg .{types[start]} {stem}<{slot - start}>;"
        else:
            yield f"\t.reg .{types[start]} {names[start]};"
            slot = start + 1


class _Lists:
    """The branch and call target lists of a function: named here, because a `Module` does not name them."""

    def __init__(self, function: Function) -> None:
        self._used = set(function.prototypes)
        self._used.update(label.name for i in function.instructions for label in _labels(i))
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}

    def name(self, directive: str, items: tuple[str, ...]) -> str:
        """The name of the list, made at its first use."""
        key = (directive, items)
        if key not in self._names:
            number = len(self._names)
            while f"$list{number}" in self._used:
                number += 1 + len(self._used)
            self._names[key] = f"$list{number}"
            self._used.add(f"$list{number}")
        return self._names[key]

    def lines(self) -> list[str]:
        """The statements that declare the lists."""
        return [f"{name}: {directive} {', '.join(items)};" for (directive, items), name in self._names.items()]


def _labels(instruction: Instruction) -> Iterator[Label]:
    for operand in instruction.operands:
        if isinstance(operand, Label):
            yield operand
        elif isinstance(operand, LabelList):
            yield from operand.labels


def _body(function: Function) -> list[str]:
    lists = _Lists(function)
    labels: dict[int, dict[str, None]] = {}
    code: list[str] = []
    for instruction in function.instructions:
        for label in _labels(instruction):
            labels.setdefault(label.index, {})[label.name] = None
        code.append("\t" + _instruction(instruction, lists))
    lines = ["{", *_registers(function)]
    lines += ["\t" + _variable(v) for v in function.variables]
    for name, p in function.prototypes.items():
        returns = _parameters(p.returns) + " " if p.returns else ""
        lines.append(f"{name}: .callprototype {returns}_ {_parameters(p.parameters)};")
    lines += lists.lines()
    for index in range(len(code) + 1):
        lines += [f"{name}:" for name in labels.get(index, ())]
        lines += code[index : index + 1]
    return [*lines, "}"]


def _instruction(instruction: Instruction, lists: _Lists) -> str:
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' if instruction.guard_negated else ''}{instruction.guard.name} "
    family = instruction.opcode.partition(".")[0]
    if family == "call":
        operands = _call(instruction.operands, lists)
    elif family in ("mov", "cvta"):
        operands = [_bare(o) for o in instruction.operands]
    else:
        operands = [
            lists.name(".branchtargets", tuple(label.name for label in o.labels))
            if isinstance(o, LabelList)
            else _operand(o)
            for o in instruction.operands
        ]
    return f"{guard}{instruction.opcode} {', '.join(operands)}".rstrip() + ";"


def _call(operands: tuple[Operand, ...], lists: _Lists) -> list[str]:
    returns, callee, arguments, *frame = operands
    parts = [_list(returns, "(", ")")] if returns != Vector(()) else []
    parts.append(_operand(callee))
    if arguments != Vector(()) or frame:
        parts.append(_list(arguments, "(", ")"))
    for last in frame:
        if isinstance(last, Vector):
            parts.append(lists.name(".calltargets", tuple(map(_operand, last.items))))
        else:
            parts.append(_operand(last))
    return parts


def _bare(operand: Operand) -> str:
    """Symbol arithmetic of `mov` stands without brackets, and keeps its `+0` to stay an `Address`."""
    if isinstance(operand, Address):
        return f"{_operand(operand.base)}+{operand.offset}"
    return _operand(operand)


def _list(operand: Operand, opening: str, closing: str) -> str:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return opening + ", ".join(map(_operand, items)) + closing


def _operand(operand: Operand) -> str:
    match operand:
        case Reg() | Symbol() | Label():
            return operand.name
        case Imm():
            return operand.text
        case Special():
            return "%" + operand.name
        case Sink():
            return "_"
        case Vector():
            return _list(operand, "{", "}")
        case Address():
            offset = f"+{operand.offset}" if operand.offset else ""
            return f"[{_operand(operand.base)}{offset}]"
        case TensorAddress():
            return f"{_operand(operand.map)[:-1]}, {_list(Vector(operand.coords), '{', '}')}]"
        case Pair():
            return f"{_operand(operand.first)}|{_operand(operand.second)}"
        case Not():
            return "!" + _operand(operand.operand)
    raise TypeError(f"{type(operand).__name__} is no operand of a single name")
