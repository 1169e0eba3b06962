"""The only file that drives the CuTe DSL's compiler: compile to files, load from files.

What nvidia-cutlass-dsl 4.8.1 offers, measured: `compiled.dump_to_object(prefix)` writes an ELF object of 10 to 300 KB
with host code, device image and signature, which `ExternalBinaryModule` links again in another process in about 5 ms,
against 60 ms to 3.4 s for a compile. So a compile always ends in an object, and what runs is always loaded from it:
one path to trust. The DSL reads its settings from one process-wide manager when it compiles and when it loads:
`settings` sets them for the time of one call. It therefore doesn't matter who imported cutlass first, and with which
environment.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backends.base import Resources
from backends.patches import Patches

OBJECT, PTX, PTXAS = "kernel.o", "kernel.ptx", "ptxas.json"
_PREFIX = "workbench"
# The runtime library's functions, and what the stand-in puts before their names.
_RUNTIME_FUNCTION = re.compile(r"_cuda[A-Z]|_cu[A-Z]|cuda_dialect_|CuteDSLRT_")
_STAND_IN = "emulated_"
_lock = threading.RLock()


@contextmanager
def settings(arch: str, library: Path | None) -> Iterator[Any]:
    """The DSL's settings for one call: architecture, and the stand-in library that host code is linked to (None: the
    DSL's own)."""
    from cutlass.cutlass_dsl import CuTeDSL

    dsl = CuTeDSL._get_dsl()
    with _lock, Patches() as patches:
        # Some helpers of the DSL read the variable themselves.
        patches.environment("CUTE_DSL_ARCH", arch)
        patches.set(dsl.envar, "_arch", arch)
        patches.set(dsl.envar, "disable_file_caching", True)
        if library:
            patches.set(dsl.envar, "shared_libs", str(library))
            call_stand_in(patches)
        yield dsl


def call_stand_in(patches: Patches) -> None:
    """Have host code that is compiled from now on call the stand-in's functions."""
    from cutlass.base_dsl.compiler import Compiler

    def compile(compiler: Any, *args: Any, **named: Any) -> Any:
        module = before(compiler, *args, **named)
        _rename_runtime_functions(module)
        return module

    before = patches.set(Compiler, "compile", compile)


def _rename_runtime_functions(module: Any) -> None:
    """Put the stand-in's prefix before every runtime function that a compiled module declares."""
    from cutlass._mlir import ir as bindings

    ir: Any = bindings
    with module.context:
        for operation in list(module.body.operations):
            if operation.operation.name != "llvm.func" or len(operation.operation.regions[0].blocks):
                continue
            name = ir.StringAttr(operation.operation.attributes["sym_name"]).value
            if _RUNTIME_FUNCTION.match(name):
                ir.SymbolTable.replace_all_symbol_uses(name, _STAND_IN + name, module.operation)
                ir.SymbolTable.set_symbol_name(operation, _STAND_IN + name)


def build(kernel: Any, args: tuple[Any, ...], options: str, arch: str, library: Path | None, folder: Path) -> None:
    """Compile `kernel` for `args` into `folder`: kernel.o, kernel.ptx, ptxas.json. Errors are the DSL's own."""
    import cutlass.cute as cute

    with settings(arch, library), tempfile.TemporaryDirectory() as dump, _ptxas_log() as log:
        given = f"remarks{{ptx}} --gpu-arch {arch} --keep-ptx --dump-dir {shlex.quote(dump)} {options}"
        compiled = cute.compile(kernel, *args, options=given.strip())
        (folder / PTX).write_text(compiled.__ptx__ or "")
        if uses_tvm_ffi(options):
            compiled.export_to_c(str(folder / OBJECT), function_name=_PREFIX)
        else:
            (folder / OBJECT).write_bytes(compiled.dump_to_object(_PREFIX))
    found = parse_ptxas("\n".join(log))
    (folder / PTXAS).write_text(json.dumps({name: asdict(r) for name, r in found.items()}, indent=1))


def uses_tvm_ffi(options: str) -> bool:
    """Whether a compile with these options makes a TVM-FFI function: a cheaper call, for which apache-tvm-ffi is
    needed."""
    return "enable-tvm-ffi" in options


def load(folder: Path, options: str, arch: str, library: Path | None) -> Any:
    """The host function of an entry, linked to `library`. Its device image is loaded at once, or, by a TVM-FFI
    function, at the first call. Raises what the DSL raises on a bad object."""
    from cutlass.base_dsl.export import ExternalBinaryModule

    with settings(arch, library):
        if uses_tvm_ffi(options):
            return ExternalBinaryModule(str(folder / OBJECT), enable_tvm_ffi=True)[_PREFIX]
        function = ExternalBinaryModule(str(folder / OBJECT))[_PREFIX]
        if library:
            # The DSL would ask the CUDA driver for the number of devices, and to unload a library that it never loaded.
            function.num_devices = 1
        function.to(None)
        if library:
            function.jit_module.unload = _nothing
    return function


def _nothing() -> None:
    """The stand-in's library handles need no unloading."""


def resources(folder: Path) -> dict[str, Resources]:
    """What ptxas reported for an entry's kernels."""
    return {name: Resources(**values) for name, values in json.loads((folder / PTXAS).read_text()).items()}


def entries(ptx: str) -> tuple[str, ...]:
    """Names of the kernels of a PTX module, in their order."""
    return tuple(re.findall(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", ptx, re.MULTILINE))


@contextmanager
def _ptxas_log() -> Iterator[list[str]]:
    """Collect what `remarks{ptx}` would print; everything else that a compile reports is printed as ever."""
    from cutlass.base_dsl.diagnostics import CompilerDiagnosticSession

    log: list[str] = []
    original = CompilerDiagnosticSession.format_success

    def keep(session: Any) -> str:
        text = original(session)
        if "ptxas info" not in text:
            return text
        log.append(text)
        return ""

    CompilerDiagnosticSession.format_success = keep  # type: ignore[assignment, method-assign]
    try:
        yield log
    finally:
        CompilerDiagnosticSession.format_success = original  # type: ignore[method-assign]


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIGURES = {
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "shared": r"(\d+) bytes smem",
    "constant": r"(\d+) bytes cmem\[0\]",
}


def parse_ptxas(text: str) -> dict[str, Resources]:
    """The figures of `ptxas -v`, by kernel. A figure that isn't mentioned is 0."""
    plain = _COLOUR.sub("", text)
    parts = re.split(r"Compiling entry function '([^']+)'", plain)[1:]
    found: dict[str, Resources] = {}
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        figures = {key: re.search(pattern, part) for key, pattern in _FIGURES.items()}
        found[name] = Resources(**{key: int(match[1]) if match else 0 for key, match in figures.items()})
    return found
