"""The lane algebra as LLVM IR: the operations on top of the block's frame.

What native code cannot do is a call back into Python, to the very function that the NumPy builder would have called: a
lane function, or a handler of the machine. `Frame.fast` may name native code that does a handler's work when nothing
unusual happens, so that Python is only asked when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emulator.builders import lanes
from emulator.builders.algebra import Unsupported
from emulator.builders.llvm_block import LlvmBlock
from emulator.builders.llvm_formats import PURE
from emulator.builders.llvm_values import (
    CANONICAL_NAN,
    DIVERGE,
    IR,
    JUMP,
    LANES,
    LAUNCH,
    MANGLED,
    VECTOR,
    Effect,
    Kept,
    Uniform,
    W,
)
from emulator.builders.sources import WIDTH

SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
CLOCKS = {"clock": "u32", "globaltimer_lo": "u32", "clock64": "u64", "globaltimer": "u64"}
_LANE = f"<{', '.join(f'i32 {k}' for k in range(LANES))}>"


class LlvmBuilder(LlvmBlock):
    """Prints one basic block as IR: `algebra.Builder` for the native engine."""

    # ---------------------------------------------------------------- sources
    def lane(self) -> W:
        """The lane index, u32."""
        return W(_LANE, "u32")

    def special(self, name: str) -> W:
        """A special register; u64 for clock64 and globaltimer, u32 otherwise. Clocks count the warp's instructions and
        the nanoseconds that it slept; who reads them waits for time to pass, which is no deadlock."""
        if name not in CLOCKS:
            return self._constant("special", name, "u32")
        type = CLOCKS[name]
        self.progress()
        ticks = self.raw(f"add i64 {self.raw('load i64, ptr %instructions')}, {self.word('slept')}")
        return self.splat(ticks if type == "u64" else self.raw(f"trunc i64 {ticks} to i32"), type)

    def progress(self) -> None:
        """Something changed that another warp may wait for."""
        at = self.address("%launch", LAUNCH["changes"])
        count = self.raw(f"load i64, ptr {at}")
        self.emit(f"store i64 {self.raw(f'add i64 {count}, 1')}, ptr {at}")

    def symbol(self, name: str, type: str) -> W:
        """The address of a variable, as u32 (shared window) or u64 (generic)."""
        if self.layout.space_of(name) is None:
            raise Unsupported(f"unknown symbol `{name}`")
        return self.resize(self._constant("symbol", name, "u64"), type)

    def _constant(self, kind: str, name: str, type: str) -> W:
        key = f"{kind} {name}"
        if key not in self.memo:
            self.memo[key] = self.load(type, "%constants", self.frame.constant(kind, name))
        return self.memo[key]

    def splat(self, scalar: str, type: str) -> W:
        """A scalar in all lanes."""
        kind = VECTOR[type]
        first = self.raw(f"insertelement {kind} poison, {IR[type]} {scalar}, i64 0")
        return self.value(f"shufflevector {kind} {first}, {kind} poison, <{LANES} x i32> zeroinitializer", type)

    # ---------------------------------------------------------------- integers
    def _binary(self, operation: str, a: W, b: W, loose_nan: bool = False) -> W:
        if a.type != b.type:
            raise Unsupported(f"operands of types {a.type} and {b.type}")
        return self.value(f"{operation} {self.text(a)}, {self.name(b)}", a.type, loose_nan)

    def intrinsic(self, name: str, type: str, *operands: W | tuple[str, str], loose_nan: bool = False) -> W:
        """A call of `llvm.<name>`, overloaded on the result type."""
        result = W(self.call(f"llvm.{name}.{MANGLED[type]}", VECTOR[type], *operands), type)
        result.loose_nan = loose_nan
        return result

    def convert(self, step: str, value: W, type: str) -> W:
        """A conversion instruction of the IR: fpext, fptrunc, sitofp, fptosi, …; the result may hold any NaN."""
        result = self.value(f"{step} {self.text(value)} to {VECTOR[type]}", type)
        result.loose_nan = type in CANONICAL_NAN
        return result

    def add(self, a: W, b: W) -> W:
        """a + b, wrapping."""
        return self._binary("add", a, b)

    def sub(self, a: W, b: W) -> W:
        """a - b, wrapping."""
        return self._binary("sub", a, b)

    def mul(self, a: W, b: W) -> W:
        """Low half of the product."""
        return self._binary("mul", a, b)

    def mulhi(self, a: W, b: W) -> W:
        """High half of the product."""
        width, step = WIDTH[a.type], "sext" if a.type[0] == "s" else "zext"
        wide = f"<{LANES} x i{2 * width}>"
        x, y = (self.raw(f"{step} {self.text(v)} to {wide}") for v in (a, b))
        product = self.raw(f"mul {wide} {x}, {y}")
        high = self.raw(f"lshr {wide} {product}, splat (i{2 * width} {width})")
        return self.value(f"trunc {wide} {high} to {VECTOR[a.type]}", a.type)

    def div(self, a: W, b: W) -> W:
        """Quotient toward zero; all ones for a zero divisor."""
        return self.pure("divide", a.type, a, b)

    def rem(self, a: W, b: W) -> W:
        """Remainder with the sign of the dividend; all ones for a zero divisor."""
        return self.pure("remainder", a.type, a, b)

    def min(self, a: W, b: W) -> W:
        """Smaller integer."""
        return self.intrinsic("smin" if a.type[0] == "s" else "umin", a.type, a, b)

    def max(self, a: W, b: W) -> W:
        """Larger integer."""
        return self.intrinsic("smax" if a.type[0] == "s" else "umax", a.type, a, b)

    def and_(self, a: W, b: W) -> W:
        """Bitwise (or predicate) and."""
        return self._binary("and", a, b)

    def or_(self, a: W, b: W) -> W:
        """Bitwise (or predicate) or."""
        return self._binary("or", a, b)

    def xor(self, a: W, b: W) -> W:
        """Bitwise (or predicate) exclusive or."""
        return self._binary("xor", a, b)

    def not_(self, a: W) -> W:
        """Bitwise (or predicate) complement."""
        return self._binary("xor", a, self.const(a.type, -1))

    def shl(self, a: W, amount: W) -> W:
        """Left shift by a u32 amount; 0 from the width on."""
        return self._shift("shl", a, amount)

    def shr(self, a: W, amount: W) -> W:
        """Right shift by a u32 amount, arithmetic for signed types; 0 or the sign from the width on."""
        return self._shift("ashr" if a.type[0] == "s" else "lshr", a, amount)

    def _shift(self, operation: str, a: W, amount: W) -> W:
        width = WIDTH[a.type]
        if amount.constant is not None and amount.constant < width:
            return self._binary(operation, a, self.const(a.type, amount.constant))
        limit = self.const("u32", width - 1)
        clamped = self.bits(self.resize(self.min(amount, limit), f"u{width}"), a.type)
        shifted = self._binary(operation, a, clamped)
        if operation == "ashr":
            return shifted
        return self.select(self.cmp("gt", amount, limit), self.const(a.type, 0), shifted)

    def popc(self, a: W) -> W:
        """Number of one bits, u32."""
        return self.resize(self.intrinsic("ctpop", f"u{WIDTH[a.type]}", a), "u32")

    def clz(self, a: W) -> W:
        """Number of leading zeros, u32."""
        return self.resize(self.intrinsic("ctlz", f"u{WIDTH[a.type]}", a, ("i1", "false")), "u32")

    def brev(self, a: W) -> W:
        """Bits in reverse order."""
        return self.intrinsic("bitreverse", a.type, a)

    # ---------------------------------------------------------------- floats
    def _arithmetic(self, operation: str, rnd: str, *operands: W) -> W:
        type = operands[0].type
        if rnd != "rn" or (operation == "fma" and type != "f32"):
            return self.pure(f"{operation}_{type}", type, *operands, rnd)
        if operation == "fma":
            return self.intrinsic("fma", type, *operands, loose_nan=True)
        return self._binary(f"f{operation}", operands[0], operands[1], type != "f64")

    def fadd(self, a: W, b: W, rnd: str = "rn") -> W:
        """IEEE sum."""
        return self._arithmetic("add", rnd, a, b)

    def fsub(self, a: W, b: W, rnd: str = "rn") -> W:
        """IEEE difference."""
        return self._arithmetic("sub", rnd, a, b)

    def fmul(self, a: W, b: W, rnd: str = "rn") -> W:
        """IEEE product."""
        return self._arithmetic("mul", rnd, a, b)

    def ffma(self, a: W, b: W, c: W, rnd: str = "rn") -> W:
        """IEEE fused multiply-add, one rounding."""
        return self._arithmetic("fma", rnd, a, b, c)

    def fmin(self, a: W, b: W, nan: bool = False) -> W:
        """Smaller float; -0 < +0; a NaN operand loses, or wins as the canonical NaN with `nan`."""
        return self._extreme("min", a, b, nan)

    def fmax(self, a: W, b: W, nan: bool = False) -> W:
        """Larger float, with the rules of `fmin`."""
        return self._extreme("max", a, b, nan)

    def _extreme(self, which: str, a: W, b: W, nan: bool) -> W:
        name = f"{which}imum" if nan else f"{which}imumnum"
        result = self.intrinsic(name, a.type, a, b, loose_nan=a.type != "f64")
        if a.type == "f64":
            # Its NaN are not all alike: of two, the first one survives.
            result = self.select(self.and_(self.isnan(a), self.isnan(b)), a, result)
        return result

    def fneg(self, a: W) -> W:
        """Sign flipped (arithmetic on NaN: the canonical NaN)."""
        return self.value(f"fneg {self.text(a)}", a.type, loose_nan=a.type != "f64")

    def fabs(self, a: W) -> W:
        """Sign cleared (arithmetic on NaN: the canonical NaN)."""
        return self.intrinsic("fabs", a.type, a, loose_nan=a.type != "f64")

    def ftz(self, a: W) -> W:
        """Subnormals to zero of the same sign."""
        return self.pure("flush", a.type, a)

    # ---------------------------------------------------------------- comparison and choice
    def cmp(self, relation: str, a: W, b: W) -> W:
        """eq ne lt le gt ge; for floats IEEE quiet relations (only ne is true on NaN)."""
        if a.type != b.type:
            raise Unsupported(f"operands of types {a.type} and {b.type}")
        if a.type[0] == "f":
            operation = f"fcmp {'une' if relation == 'ne' else 'o' + relation}"
        else:
            table = SIGNED if a.type[0] == "s" else UNSIGNED
            operation = f"icmp {table.get(relation, relation)}"
        return self.value(f"{operation} {self.text(a)}, {self.name(b)}", "pred")

    def isnan(self, a: W) -> W:
        """True where a float is NaN."""
        return self.value(f"fcmp uno {self.text(a)}, {self.name(a)}", "pred")

    def select(self, p: W, a: W, b: W) -> W:
        """a where p, else b."""
        if a.parts is not None and a.name is None and WIDTH[a.type] == WIDTH[b.type]:
            others = self.unpack(b, len(a.parts))
            chosen = [self.select(p, x, self.bits(y, x.type)) for x, y in zip(a.parts, others, strict=True)]
            return W(None, a.type, chosen)
        if a.type != b.type:
            raise Unsupported(f"a choice between a {a.type} and a {b.type} value")
        if a.loose_nan != b.loose_nan and not (_is_number(a) or _is_number(b)):
            a, b = self.canonical(a), self.canonical(b)
        loose = a.loose_nan or b.loose_nan
        return self.value(f"select {self.text(p)}, {self.text(a)}, {self.text(b)}", a.type, loose)

    # ---------------------------------------------------------------- everything else
    def pure(self, name: str, types: str | Sequence[str], *arguments: Any) -> Any:
        """A lane function: as IR where `llvm_pure` knows it, else as a call of the NumPy one."""
        known = PURE.get(name)
        if known is not None:
            result = known(self, types, *arguments)
            if result is not None:
                result.loose_nan = result.type in CANONICAL_NAN
                return result
        function = getattr(lanes, name, None)
        if function is None:
            raise Unsupported(f"no lane function `{name}`")
        results = self._effect(function, arguments, types, blocking=False, pure=True)
        for value in results if isinstance(results, list) else [results]:
            value.loose_nan = value.type in CANONICAL_NAN
        return results

    def effect(self, handler: Callable[..., Any], *arguments: Any, out: str | Sequence[str] = ()) -> Any:
        """Call the machine: `handler(warp, mask, *arguments)`; skipped when no lane executes."""
        return self._effect(handler, arguments, out, blocking=False, pure=False)

    def blocking(self, handler: Callable[..., Any], *arguments: Any, out: str | Sequence[str] = ()) -> Any:
        """Like `effect`, but the handler may answer None: the block is entered again from its start."""
        return self._effect(handler, arguments, out, blocking=True, pure=False)

    def _effect(self, handler: Any, arguments: Sequence[Any], out: Any, blocking: bool, pure: bool) -> Any:
        """The call, between the labels that its guard and its native shortcut need. Operands are complete before the
        first branch, so that nothing that is printed on one path is used on another."""
        frame = self.frame
        frame.scratch = 0
        for argument in arguments:
            self._complete(argument)
        results = tuple(frame.reserve(t) for t in ([out] if isinstance(out, str) else out))
        done = frame.label("e")
        if self.guard is not None and not pure:
            called = frame.label("g")
            none = self.raw(f"icmp eq i32 {self.mask_word()}, 0")
            self.emit(f"br i1 {none}, label %{done}, label %{called}")
            self.open(called)
        fast = frame.fast.get(handler)
        shortcut = None if fast is None else fast(self, arguments, results)
        guard = None if shortcut is None else shortcut.guard
        inside = guard is not None
        if shortcut is not None:
            slow = "stop" if inside else frame.label("s")
            arguments = shortcut.arguments
            self.emit(f"br i1 {shortcut.done}, label %{done}, label %{slow}")
            if not inside:
                self.open(slow)
        if self.guard is None or pure:
            guard = None
        elif not inside:
            guard = self.keep(self.guard).offset
        kept = tuple(self._keep(a) for a in arguments)
        number = len(frame.effects)
        single = isinstance(out, str)
        frame.effects.append(Effect(handler, self.index, self.block, guard, kept, results, single, blocking, pure))
        if not inside:
            answer = self.raw(f"call i32 %callback(i32 {number})")
            self.emit(f"br i1 {self.raw(f'icmp eq i32 {answer}, 0')}, label %{done}, label %stop")
        self.open(done)
        values = [self.load(k.type, "%scratch", k.offset) for k in results]
        return values[0] if single else values if out else None

    def _complete(self, argument: Any) -> None:
        if isinstance(argument, W):
            self.name(self.canonical(argument))
        elif isinstance(argument, (list, tuple)):
            for item in argument:
                self._complete(item)

    def _keep(self, argument: Any) -> Any:
        if isinstance(argument, W):
            if argument.constant is not None:
                return Uniform(argument.type, argument.constant)
            return self.keep(argument)
        if isinstance(argument, (list, tuple)) and any(isinstance(a, (W, Kept)) for a in argument):
            return tuple(self._keep(a) for a in argument)
        return argument

    # ---------------------------------------------------------------- control
    def branch(self, target: int) -> None:
        """Go to block `target` for the executing lanes; the others fall through. Ends the block."""
        self.flush()
        if self.guard is None:
            self.go(target)
            return
        following, tag = self.layout.following, self.block
        taken = self.mask_word()
        self.emit(f"br i1 {self.raw(f'icmp eq i32 {taken}, 0')}, label %n{tag}, label %t{tag}")
        self.open(f"n{tag}")
        self.go(following)
        self.open(f"t{tag}")
        every = self.raw(f"icmp eq i32 {taken}, %lanes.word")
        self.emit(f"br i1 {every}, label %a{tag}, label %d{tag}")
        self.open(f"a{tag}")
        self.go(target)
        self.open(f"d{tag}")
        self.note("taken", self.raw(f"zext i32 {taken} to i64"))
        self.note("target", str(target))
        self.note("following", str(following))
        self.emit(f"ret i32 {DIVERGE}")

    def jump(self, index: W, targets: tuple[int, ...]) -> None:
        """Go to `targets[index]` per lane. Ends the block."""
        self.frame.scratch = 0
        self.flush()
        kept, mask = self.keep(index), self.keep(self.mask())
        self.frame.jumps[self.block] = (kept, mask.offset, targets, self.layout.following)
        self.note("target", str(self.block))
        self.emit(f"ret i32 {JUMP}")

    def exit(self) -> None:
        """End the executing lanes."""
        self.branch(self.layout.exit_block)


def _is_number(value: W) -> bool:
    """A literal that is not NaN."""
    infinity = {"f16": 0x7C00, "f32": 0x7F800000}.get(value.type, 0)
    return value.constant is not None and value.constant & ((1 << WIDTH[value.type] - 1) - 1) <= infinity
