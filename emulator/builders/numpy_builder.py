"""The lane algebra as Python source over NumPy arrays of 32 lanes: the readable reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emulator.builders.algebra import Unsupported
from emulator.builders.numpy_block import BLOCKED, DTYPES, WIDTH, NumpyBlock, V, base_namespace

__all__ = ["BLOCKED", "NumpyBuilder", "base_namespace"]

LOOSE = ("f16", "f32")
"""Types whose NaN has one canonical pattern: a value of them may hold another until its bits are observed."""

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class NumpyBuilder(NumpyBlock):
    """Prints one basic block: the operations of `algebra.Builder` on top of the block's frame."""

    # ---------------------------------------------------------------- integers
    def _binary(self, symbol: str, a: V, b: V, loose_nan: bool = False) -> V:
        if a.type != b.type:
            raise Unsupported(f"operands of types {a.type} and {b.type}")
        return self._value(f"{self._name(a)} {symbol} {self._name(b)}", a.type, loose_nan)

    def add(self, a: V, b: V) -> V:
        """a + b, wrapping."""
        return self._binary("+", a, b)

    def sub(self, a: V, b: V) -> V:
        """a - b, wrapping."""
        return self._binary("-", a, b)

    def mul(self, a: V, b: V) -> V:
        """Low half of the product."""
        return self._binary("*", a, b)

    def mulhi(self, a: V, b: V) -> V:
        """High half of the product."""
        return self._call(f"mulhi_{a.type}", a.type, a, b)

    def div(self, a: V, b: V) -> V:
        """Quotient toward zero; all ones for a zero divisor."""
        return self._call("divide", a.type, a, b)

    def rem(self, a: V, b: V) -> V:
        """Remainder with the sign of the dividend; all ones for a zero divisor."""
        return self._call("remainder", a.type, a, b)

    def min(self, a: V, b: V) -> V:
        """Smaller integer."""
        return self._value(f"np.minimum({self._name(a)}, {self._name(b)})", a.type)

    def max(self, a: V, b: V) -> V:
        """Larger integer."""
        return self._value(f"np.maximum({self._name(a)}, {self._name(b)})", a.type)

    def and_(self, a: V, b: V) -> V:
        """Bitwise (or predicate) and."""
        return self._binary("&", a, b)

    def or_(self, a: V, b: V) -> V:
        """Bitwise (or predicate) or."""
        return self._binary("|", a, b)

    def xor(self, a: V, b: V) -> V:
        """Bitwise (or predicate) exclusive or."""
        return self._binary("^", a, b)

    def not_(self, a: V) -> V:
        """Bitwise (or predicate) complement."""
        return self._value(f"~{self._name(a)}", a.type)

    def shl(self, a: V, amount: V) -> V:
        """Left shift by a u32 amount; 0 from the width on."""
        return self._shift("<<", "shift_left", a, amount)

    def shr(self, a: V, amount: V) -> V:
        """Right shift by a u32 amount, arithmetic for signed types; 0 or the sign from the width on."""
        return self._shift(">>", "shift_right", a, amount)

    def _shift(self, symbol: str, helper: str, a: V, amount: V) -> V:
        name = self._name(amount)
        known = self.namespace[name] if name.startswith("K_") else None
        if known is not None and int(known[0]) < WIDTH[a.type]:
            k = self._constant(np.full(32, int(known[0]), DTYPES[a.type]))
            return self._value(f"{self._name(a)} {symbol} {k}", a.type)
        return self._call(helper, a.type, a, amount)

    def popc(self, a: V) -> V:
        """Number of one bits, u32."""
        return self._call("popcount", "u32", a)

    def clz(self, a: V) -> V:
        """Number of leading zeros, u32."""
        return self._call("leading_zeros", "u32", a)

    def brev(self, a: V) -> V:
        """Bits in reverse order."""
        return self._call("reverse_bits", a.type, a)

    def _call(self, helper: str, type: str, *arguments: Any) -> V:
        return self.pure(helper, type, *arguments)

    # ---------------------------------------------------------------- floats
    def _arithmetic(self, symbol: str, helper: str, rnd: str, *operands: V) -> V:
        type = operands[0].type
        if rnd == "rn" and symbol:
            return self._binary(symbol, operands[0], operands[1], loose_nan=type != "f64")
        names = ", ".join(self._name(o) for o in operands)
        mode = "" if rnd == "rn" else f", {rnd!r}"
        return self._value(f"L_{helper}_{type}({names}{mode})", type, loose_nan=type != "f64")

    def fadd(self, a: V, b: V, rnd: str = "rn") -> V:
        """IEEE sum."""
        return self._arithmetic("+", "add", rnd, a, b)

    def fsub(self, a: V, b: V, rnd: str = "rn") -> V:
        """IEEE difference."""
        return self._arithmetic("-", "sub", rnd, a, b)

    def fmul(self, a: V, b: V, rnd: str = "rn") -> V:
        """IEEE product."""
        return self._arithmetic("*", "mul", rnd, a, b)

    def ffma(self, a: V, b: V, c: V, rnd: str = "rn") -> V:
        """IEEE fused multiply-add, one rounding."""
        return self._arithmetic("", "fma", rnd, a, b, c)

    def fmin(self, a: V, b: V, nan: bool = False) -> V:
        """Smaller float; -0 < +0; a NaN operand loses, or wins as the canonical NaN with `nan`."""
        return self._call("fmin_nan" if nan else "fmin", a.type, a, b)

    def fmax(self, a: V, b: V, nan: bool = False) -> V:
        """Larger float, with the rules of `fmin`."""
        return self._call("fmax_nan" if nan else "fmax", a.type, a, b)

    def fneg(self, a: V) -> V:
        """Sign flipped (arithmetic on NaN: the canonical NaN)."""
        return self._value(f"-{self._name(a)}", a.type, loose_nan=a.type != "f64")

    def fabs(self, a: V) -> V:
        """Sign cleared (arithmetic on NaN: the canonical NaN)."""
        return self._value(f"np.abs({self._name(a)})", a.type, loose_nan=a.type != "f64")

    def ftz(self, a: V) -> V:
        """Subnormals to zero of the same sign."""
        return self._call("flush", a.type, a)

    # ---------------------------------------------------------------- comparison and choice
    def cmp(self, relation: str, a: V, b: V) -> V:
        """eq ne lt le gt ge; for floats IEEE quiet relations (only ne is true on NaN)."""
        if a.type != b.type:
            raise Unsupported(f"operands of types {a.type} and {b.type}")
        return self._value(f"{self._name(a)} {RELATIONS[relation]} {self._name(b)}", "pred")

    def isnan(self, a: V) -> V:
        """True where a float is NaN."""
        return self._value(f"np.isnan({self._name(a)})", "pred")

    # ---------------------------------------------------------------- everything else
    def pure(self, name: str, types: str | Sequence[str], *arguments: Any) -> Any:
        """A lane function of `lanes.py` by name; static arguments are passed as they are."""
        if f"L_{name}" not in self.namespace:
            raise Unsupported(f"no lane function `{name}`")
        call = f"L_{name}({', '.join(self._argument(a, loose=True) for a in arguments)})"
        return self._results(call, types)

    def _results(self, call: str, types: str | Sequence[str]) -> Any:
        if isinstance(types, str):
            return self._value(call, types, types in LOOSE)
        result = self._emit(call)
        return [self._value(f"{result}[{k}]", t, t in LOOSE) for k, t in enumerate(types)]

    def _argument(self, argument: Any, loose: bool = False) -> str:
        """The text of an argument; `loose` for functions that never tell one NaN from another."""
        if isinstance(argument, V):
            value = argument if loose else self.canonical(argument)
            return self._name(value) + (".copy()" if value.strided else "")
        if isinstance(argument, (list, tuple)) and any(isinstance(a, V) for a in argument):
            return "(" + "".join(f"{self._argument(a, loose)}, " for a in argument) + ")"
        if argument is None or isinstance(argument, (int, str, bool, float, tuple)):
            return repr(argument)
        return self._reference(argument)

    def effect(self, handler: Callable[..., Any], *arguments: Any, out: str | Sequence[str] = ()) -> Any:
        """Call the machine: `handler(warp, mask, *arguments)`. Skipped when no lane executes; `out` gives the result
        types (a string for one). Results of skipped calls are unspecified, and never reach a register."""
        call = self._handler_call(handler, arguments)
        if not out:
            self.lines.append(self._guarded(call))
            return None
        return self._conditional_results(call, out, "")

    def blocking(self, handler: Callable[..., Any], *arguments: Any, out: str | Sequence[str] = ()) -> Any:
        """Like `effect`, but the handler may answer None: the warp waits and the block is entered again later. Must
        be the first instruction of its block."""
        return self._conditional_results(self._handler_call(handler, arguments), out, f"if t is None: return {BLOCKED}")

    def _handler_call(self, handler: Callable[..., Any], arguments: Sequence[Any]) -> str:
        names = "".join(f", {self._argument(a)}" for a in arguments)
        self.lines.append(f"w.at = {self.index}")
        return f"{self._reference(handler)}(w, {self._mask()}{names})"

    def _guarded(self, statement: str) -> str:
        return f"if L_some({self.guard}): {statement}" if self.guard else statement

    def _conditional_results(self, call: str, types: str | Sequence[str], check: str) -> Any:
        single = isinstance(types, str)
        names = [types] if isinstance(types, str) else list(types)
        zeros = ", ".join(self.const(t, 0).name or "" for t in names)
        if self.guard:
            nothing = zeros if single else f"({zeros},)"
            self.lines.append(f"if L_some({self.guard}):")
            self.lines += [f"  t = {call}"] + ([f"  {check}"] if check else [])
            self.lines.append(f"else: t = {nothing}")
        else:
            self.lines += [f"t = {call}"] + ([check] if check else [])
        if single:
            return self._value("t", names[0])
        return [self._value(f"t[{k}]", t) for k, t in enumerate(names)]

    def branch(self, target: int) -> None:
        """Go to block `target` for the executing lanes; the others fall through. Ends the block."""
        if self.guard is None:
            self.tail = [f"return {target}"]
            return
        following = self.layout.following
        self.tail = [
            f"if not L_some({self.guard}): return {following}",
            f"if L_same({self.guard}, m): return {target}",
            f"return w.diverge({self.guard}, m, {target}, {following})",
        ]

    def jump(self, index: V, targets: tuple[int, ...]) -> None:
        """Go to `targets[index]` per lane. Ends the block."""
        following = self.layout.following
        table = self._reference(np.array(targets, np.int64))
        call = f"w.jump({self._mask()}, m, {table}, {self._argument(index)}, {following})"
        self.tail = [f"w.at = {self.index}", f"return {call}"]

    def exit(self) -> None:
        """End the executing lanes."""
        self.branch(self.layout.exit_block)
