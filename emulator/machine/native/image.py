"""A kernel's native image: the printed IR, the object code made from it, and what the warps must know about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from emulator.builders.llvm_values import STATE, STOP, YIELD, Effect, Frame, Kept

_FIXED = ("registers", "scratch", "constants", "counts", "callback", "cta", "launch")
_POINTERS = ("limit", "budget", "instructions")


@dataclass(frozen=True)
class Image:
    """Everything about a translated kernel that does not depend on a launch. Picklable."""

    code: bytes
    effects: tuple[Effect, ...]
    jumps: dict[int, tuple[Kept, int, tuple[int, ...], int]]
    constants: dict[tuple[str, str], int]
    register_at: tuple[int, ...]
    register_bytes: int
    scratch_bytes: int
    paired: frozenset[int]
    starts: tuple[int, ...]


def assemble(frame: Frame, blocks: int) -> str:
    """The module of a printed kernel: `i32 kernel(ptr state, i32 block)`, which answers one of the codes of
    `llvm_values`."""
    head = ["define i32 @kernel(ptr noalias %state, i32 %entry) nounwind {", "start:"]
    for name in (*_FIXED, *_POINTERS):
        head.append(f"%{name}.at = getelementptr i8, ptr %state, i64 {STATE[name]}")
    head += [f"%{name} = load ptr, ptr %{name}.at" for name in _FIXED]
    head += [f"%{name} = getelementptr i8, ptr %state, i64 {STATE[name]}" for name in _POINTERS]
    head += [
        f"%lanes.at = getelementptr i8, ptr %state, i64 {STATE['lanes']}",
        "%lanes.word = load i32, ptr %lanes.at",
        "%lanes.others = xor i32 %lanes.word, -1",
        "%lanes = bitcast i32 %lanes.word to <32 x i1>",
        "switch i32 %entry, label %stop [",
        *(f"i32 {b}, label %b{b}" for b in range(blocks)),
        "]",
        "stop:",
        f"ret i32 {STOP}",
    ]
    tail = []
    for target in frame.exits:
        at = f"%exit{target}.at"
        tail += [
            f"exit{target}:",
            f"{at} = getelementptr i8, ptr %state, i64 {STATE['target']}",
            f"store i64 {target}, ptr {at}",
            f"ret i32 {YIELD}",
        ]
    functions = [line for body in frame.functions.values() if body is not None for line in body]
    constants = [f"@{name} = internal constant {value}" for name, value in frame.globals.items()]
    return "\n".join([*frame.declared, *constants, *functions, *head, *frame.lines, *tail, "}", ""])


@cache
def _host() -> tuple[Any, str, str]:
    """LLVM's target for this machine, the name of its processor and the features of that."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def supported() -> bool:
    """Whether this processor has what the printed code takes for granted: fused multiply-add and conversions of f16
    that are instructions, not calls of a library."""
    target, _, features = _host()
    needed = ("+avx2", "+fma", "+f16c") if target.name.startswith("x86") else ()
    return all(feature in features.split(",") for feature in needed)


def _machine(level: int) -> Any:
    target, name, features = _host()
    return target.create_target_machine(cpu=name, features=features, opt=level, jit=True)


@cache
def _compiler(level: int) -> Any:
    return _machine(level)


def compile_text(text: str, level: int = 0) -> bytes:
    """Object code of a module."""
    import llvmlite.binding as llvm

    machine = _compiler(level)
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    return bytes(machine.emit_object(module))


class Loaded:
    """Object code in memory, as long as this object lives."""

    def __init__(self, *codes: bytes) -> None:
        import llvmlite.binding as llvm

        # The engine owns its machine.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(0))
        for code in codes:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function is."""
        found: int = self._engine.get_function_address(name)
        if not found:
            raise RuntimeError(f"object code without a function {name!r}")
        return found
