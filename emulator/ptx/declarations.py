"""Declarations: variables of every space with their initial bytes, parameters, registers.

PTX manual sections 5.4 (variables) and 7.1 (functions). Sizes are bytes; an alignment is never below the type's own.
"""

from __future__ import annotations

import math
import struct

from emulator.ptx.lexer import DIRECTIVE, IDENT, NUMBER, Tokens
from emulator.ptx.module import Imm, Parameter, Variable
from emulator.ptx.scopes import MAX_REGISTERS, Scopes
from emulator.ptx.types import TYPES, ScalarType

SPACES = frozenset((".shared", ".global", ".const", ".local", ".param", ".tex"))
LINKAGE = frozenset((".visible", ".extern", ".weak", ".common"))
MAX_INITIAL_BYTES = 1 << 26
MAX_BYTES = 1 << 40

_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_FLOAT_FORMATS = {"f32": "<f", "f64": "<d"}


def name(tokens: Tokens) -> str:
    """A declared name: an identifier without dots."""
    text = tokens.texts[tokens.at]
    if "." in text or "::" in text:
        raise tokens.error("a name")
    return tokens.take(IDENT, "a name")


def scalar_type(tokens: Tokens) -> ScalarType:
    """A type such as `.b32`."""
    found = TYPES.get(tokens.texts[tokens.at][1:])
    if found is None or tokens.kinds[tokens.at] != DIRECTIVE:
        raise tokens.error("a type")
    tokens.at += 1
    return found


def alignment(tokens: Tokens) -> int:
    """The number after `.align`: a power of two."""
    at = tokens.at
    value = tokens.integer("an alignment")
    if value < 1 or value & (value - 1) or value > MAX_BYTES:
        raise tokens.error("an alignment that is a power of two", at)
    return value


def _shape(tokens: Tokens) -> tuple[ScalarType, int, int]:
    """`.align n .v4 .f32` in any order of the prefixes: type, elements of the vector, declared alignment."""
    align, width = 1, 1
    while True:
        text = tokens.texts[tokens.at]
        if text == ".align":
            tokens.at += 1
            align = alignment(tokens)
        elif text in _VECTORS:
            tokens.at += 1
            width = _VECTORS[text]
        elif text == ".attribute":
            tokens.at += 1
            tokens.skip_block("(", ")")
        else:
            break
    kind = scalar_type(tokens)
    return kind, width, max(align, kind.bytes * width)


def _dimensions(tokens: Tokens) -> list[int]:
    """`[4][8]`; the first may be empty, which reads as 0."""
    sizes: list[int] = []
    total = 1
    while tokens.next_is("["):
        at = tokens.at
        if not sizes and tokens.next_is("]"):
            sizes.append(0)
            continue
        size = tokens.integer("an array size")
        total *= max(size, 1)
        if total > MAX_BYTES:
            raise tokens.error(f"an array of at most {MAX_BYTES} elements", at)
        sizes.append(size)
        tokens.expect("]")
    return sizes


def variables(tokens: Tokens, extern: bool) -> list[Variable]:
    """`.space [.align n] [.vN] .type name[dims] [= init], …;` from the space to the semicolon."""
    space = tokens.take(DIRECTIVE, "a state space")[1:]
    if tokens.texts[tokens.at] == ":" or space == "tex":
        raise tokens.error("a variable of one of .shared .global .const .local .param")
    found = []
    kind, width, align = _shape(tokens)
    if kind.kind == "p":
        raise tokens.error("a type that has a size in memory", tokens.at - 1)
    while True:
        if tokens.texts[tokens.at] == ".align":
            tokens.at += 1
            align = max(align, alignment(tokens))
        title = name(tokens)
        at = tokens.at - 1
        sizes = _dimensions(tokens)
        nbytes = kind.bytes * width * math.prod(sizes)
        init = None
        if tokens.next_is("="):
            if space not in ("global", "const"):
                raise tokens.error(f"no initial value in space .{space}", tokens.at - 1)
            init = initial_bytes(tokens, kind, [*sizes, width] if width > 1 else sizes)
            nbytes = len(init)
        elif sizes and sizes[0] == 0 and not (extern or space == "param"):
            raise tokens.error("an array size or initial values")
        if nbytes > MAX_BYTES:
            raise tokens.error(f"a variable of at most {MAX_BYTES} bytes", at)
        found.append(Variable(title, space, align, nbytes, init, extern))
        if not tokens.next_is(","):
            break
    tokens.expect(";")
    return found


def initial_bytes(tokens: Tokens, kind: ScalarType, sizes: list[int]) -> bytes:
    """The initial values of a variable, one pair of braces for each of `sizes`; what a list leaves out is zero and an
    open first size (0) is as long as its list."""
    inner = [1] * (len(sizes) + 1)  # elements below each depth of braces
    for depth in range(len(sizes) - 1, -1, -1):
        inner[depth] = inner[depth + 1] * sizes[depth]
    limit = inner[0] or MAX_INITIAL_BYTES // kind.bytes
    if limit * kind.bytes > MAX_INITIAL_BYTES:
        raise tokens.error(f"no initial values for a variable above {MAX_INITIAL_BYTES} bytes")
    out = bytearray()
    ends: list[int] = []
    while True:
        if tokens.texts[tokens.at] == "{":
            if len(ends) == len(sizes):
                raise tokens.error("a number")
            ends.append((len(out) // kind.bytes + (inner[len(ends)] or limit)) * kind.bytes)
            tokens.at += 1
            if tokens.texts[tokens.at] != "}":
                continue
        else:
            if len(ends) < len(sizes):
                raise tokens.error("'{'")
            if ends and len(out) >= ends[-1]:
                raise tokens.error("'}'")
            out += _element(tokens, kind)
        while ends and tokens.next_is("}"):
            end = ends.pop()
            if ends or inner[0]:
                out += bytes(end - len(out))
        if not ends or not tokens.next_is(","):
            break
    if ends:
        raise tokens.error("',' or '}'")
    step = (inner[1] if sizes and not inner[0] else limit) * kind.bytes
    return bytes(out) + bytes(-len(out) % step if step else 0)


def _element(tokens: Tokens, kind: ScalarType) -> bytes:
    at = tokens.at
    kind_here = tokens.kinds[at]
    if kind_here == IDENT or (kind_here == NUMBER and tokens.texts[at + 1] == "("):
        raise tokens.error("a number (an address cannot be an initial value here)", at)
    encoded = _encode(tokens.signed(), kind)
    if encoded is None:
        raise tokens.error(f"a value of type .{kind.name}", at)
    return encoded


def _encode(value: Imm, kind: ScalarType) -> bytes | None:
    """The little-endian bytes of a literal in a type (integers modulo its size), or None where ptxas refuses it."""
    if not value.width:
        return None if kind.kind == "f" else (value.bits % (1 << kind.bits)).to_bytes(kind.bytes, "little")
    if value.width == kind.bits and kind.kind in "bf":
        return value.bits.to_bytes(kind.bytes, "little")
    if kind.name not in _FLOAT_FORMATS:
        return None
    (real,) = struct.unpack(_FLOAT_FORMATS[f"f{value.width}"], value.bits.to_bytes(value.width // 8, "little"))
    try:
        return struct.pack(_FLOAT_FORMATS[kind.name], real)
    except OverflowError:
        return struct.pack(_FLOAT_FORMATS[kind.name], math.copysign(math.inf, real))


def parameters(tokens: Tokens) -> tuple[tuple[Parameter, ...], int]:
    """`( .param … , … )` if one follows: the parameters at their offsets, and the bytes of the block."""
    found: list[Parameter] = []
    offset = 0
    if not tokens.next_is("("):
        return (), 0
    if tokens.next_is(")"):
        return (), 0
    while True:
        parameter = _parameter(tokens, offset)
        offset = parameter.offset + parameter.nbytes
        found.append(parameter)
        if not tokens.next_is(","):
            break
    tokens.expect(")")
    return tuple(found), offset


def _parameter(tokens: Tokens, offset: int) -> Parameter:
    if tokens.texts[tokens.at] == ".reg":
        raise tokens.error("'.param' (register parameters are not supported)")
    tokens.expect(".param")
    kind, width, align = _shape(tokens)
    if tokens.next_is(".ptr"):
        # What a pointer points to is a promise to the compiler; it does not change the parameter.
        while tokens.kinds[tokens.at] == DIRECTIVE:
            tokens.at += 1
            if tokens.texts[tokens.at - 1] == ".align":
                alignment(tokens)
    title = name(tokens)
    at = tokens.at - 1
    nbytes = kind.bytes * width * math.prod(_dimensions(tokens))
    if nbytes > MAX_BYTES:
        raise tokens.error(f"a parameter of at most {MAX_BYTES} bytes", at)
    return Parameter(title, -(-offset // align) * align, nbytes, align)


def registers(tokens: Tokens, scopes: Scopes) -> None:
    """`.reg [.vN] .type a, %r<100>, …;` from `.reg` to the semicolon."""
    tokens.expect(".reg")
    width = {".v2": 2, ".v4": 4}.get(tokens.texts[tokens.at], 1)
    tokens.at += width > 1
    kind = scalar_type(tokens)
    while True:
        at = tokens.at
        title = name(tokens)
        if tokens.next_is("<"):
            count = tokens.integer("a number of registers")
            tokens.expect(">")
            titles = [f"{title}{i}" for i in range(min(count, MAX_REGISTERS + 1))]
        else:
            titles = [title]
        if len(scopes.names) + len(titles) * width > MAX_REGISTERS:
            raise tokens.error(f"at most {MAX_REGISTERS} registers in a function", at)
        for each in titles:
            if each == "_" or scopes.declared_here(each):
                raise tokens.error("a name that this scope has not declared", at)
            scopes.register(each, kind.name, width)
        if not tokens.next_is(","):
            break
    tokens.expect(";")
