"""The key of a compiled kernel: everything that its machine code depends on, as readable data and as one digest.

The data is stored beside the code (`key.json`), so that two keys that differ can be compared by eye.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import inspect
import json
import platform
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Modules of these packages are covered by their version, not by their sources.
_VERSIONED = ("cutlass", "builtins", "torch", "typing", "abc", "enum", "dataclasses")


def digest(inputs: dict[str, Any]) -> str:
    """64 hex digits of the data; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def describe_kernel(kernel: Any) -> str:
    """What a kernel object is: `key()` if it has one, else its qualified name with the repr of its frozen dataclass
    fields.

    The dataclass is the kernel itself or its attribute `config`. Raises ValueError for anything else: an object whose
    settings can't be read can't be told apart from one with other settings.
    """
    name = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
    if callable(getattr(kernel, "key", None)):
        return f"{name}:{kernel.key()}"
    for held in (kernel, getattr(kernel, "config", None)):
        if dataclasses.is_dataclass(held) and not isinstance(held, type):
            if not type(held).__dataclass_params__.frozen:  # type: ignore[attr-defined]
                raise ValueError(
                    f"compile: {type(held).__qualname__} must be a frozen dataclass: its fields are part of the key"
                )
            return f"{name}:{held!r}"
    if _is_function(kernel):
        return f"{kernel.__module__}.{kernel.__qualname__}"
    raise ValueError(
        f"compile: {name} has neither key() nor the fields of a frozen dataclass (its own or those of .config)"
    )


def _is_function(kernel: Any) -> bool:
    """A `@cute.jit` function rather than an object with a `@cute.jit __call__`."""
    return inspect.isfunction(inspect.unwrap(kernel))


def compile_time_positions(kernel: Any) -> frozenset[int]:
    """Positions (without self) of the parameters annotated `cutlass.Constexpr`: they are compiled in and not
    launched."""
    called = kernel if _is_function(kernel) else type(kernel).__call__
    parameters = list(inspect.signature(inspect.unwrap(called)).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    return frozenset(i for i, p in enumerate(parameters) if "Constexpr" in str(p.annotation))


def describe_arguments(kernel: Any, args: tuple[Any, ...]) -> list[Any]:
    """The types of the arguments, with the values of those that are compiled in. Raises ValueError for an argument that
    has neither a type of the DSL nor a value that can be written down."""
    fixed = compile_time_positions(kernel)
    symbols: dict[int, int] = {}
    with _mlir_context():
        return [_describe(a, f"argument {i}", i in fixed, symbols) for i, a in enumerate(args)]


@functools.cache
def _mlir_context() -> Any:
    """One context for all types that are only printed: making one takes 1.5 ms."""
    from cutlass._mlir import ir

    return ir.Context()  # type: ignore[attr-defined]


def _describe(argument: Any, where: str, fixed: bool, symbols: dict[int, int]) -> Any:
    from cutlass.base_dsl.typing import Numeric

    if isinstance(argument, Numeric):
        return [type(argument).__name__, repr(argument.value)] if fixed else [type(argument).__name__]
    if hasattr(argument, "mlir_type"):
        return [str(argument.mlir_type), str(getattr(argument, "dtype", "")), _shared_symbols(argument, symbols)]
    if type(argument).__name__ in ("CUstream", "_FakeStream"):
        return ["stream"]
    if argument is None or isinstance(argument, (bool, int, float, str, bytes)):
        return [type(argument).__name__, repr(argument)]
    if isinstance(argument, enum.Enum):
        return ["enum", type(argument).__qualname__, argument.name]
    if isinstance(argument, (tuple, list)):
        kind = type(argument).__qualname__
        return [kind, *(_describe(a, f"{where}[{i}]", fixed, symbols) for i, a in enumerate(argument))]
    if isinstance(argument, dict):
        return [[str(k), _describe(v, f"{where}[{k!r}]", fixed, symbols)] for k, v in argument.items()]
    if dataclasses.is_dataclass(argument) and not isinstance(argument, type):
        pairs = [(f.name, getattr(argument, f.name)) for f in dataclasses.fields(argument)]
        return [
            type(argument).__qualname__,
            *([name, _describe(value, f"{where}.{name}", fixed, symbols)] for name, value in pairs),
        ]
    if callable(getattr(argument, "key", None)):
        return [type(argument).__qualname__, str(argument.key())]
    if isinstance(argument, type) or inspect.isfunction(argument):
        return ["name", argument.__module__, argument.__qualname__]
    raise ValueError(
        f"compile: {where} is a {type(argument).__qualname__}; allowed: tensors and pointers of the backend, the DSL's "
        f"fake tensors and numbers, streams, None, plain values, containers, dataclasses and objects with key()"
    )


def _shared_symbols(argument: Any, symbols: dict[int, int]) -> list[Any]:
    """Which extents of the DSL's fake tensors are the same symbol: their type does not say."""
    extents = (*_flat(getattr(argument, "shape", ())), *_flat(getattr(argument, "stride", ())))
    return [symbols.setdefault(id(e), len(symbols)) for e in extents if type(e).__name__ == "SymInt"]


def _flat(value: Any) -> tuple[Any, ...]:
    return tuple(x for v in value for x in _flat(v)) if isinstance(value, (tuple, list)) else (value,)


def describe_sources(kernel: Any) -> dict[str, str]:
    """Digest by file of all sources that the kernel may be made of: the `kernels` package, and the package (or, for a
    lone module, the file) of every class that it inherits from. A class without a file counts by its text."""
    owners = [kernel] if _is_function(kernel) else list(type(kernel).__mro__)
    files = set(_package_files(ROOT / "kernels"))
    text: dict[str, str] = {}
    for owner in owners:
        module = owner.__module__
        if module.split(".")[0] in _VERSIONED:
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None:
            text[f"<{module}.{owner.__qualname__}>"] = _hash(inspect.getsource(owner).encode())
        elif "." in module:
            files |= set(_package_files(_package(Path(file).resolve())))
        else:
            files.add(Path(file).resolve())
    return text | {str(file): _file_digest(file, *_stamp(file)) for file in sorted(files)}


def _package(file: Path) -> Path:
    """The folder of the outermost package that `file` lies in; its own folder if that has no `__init__.py`."""
    folder = file.parent
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


def _package_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _stamp(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@functools.lru_cache(maxsize=4096)
def _file_digest(file: Path, modified: int, size: int) -> str:
    return _hash(file.read_bytes())


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the tools, and the processor that host code is made for."""
    from cutlass.base_dsl.version_info import CUDA_VERSION

    return {
        "dsl": importlib.metadata.version("nvidia-cutlass-dsl"),
        # ptxas is linked into the DSL's library: its version is that of the wheel's CUDA flavour.
        "ptxas": f"in nvidia-cutlass-dsl, CUDA {CUDA_VERSION.major}.{CUDA_VERSION.minor}",
        "python": platform.python_version(),
        "host": f"{platform.machine()} {_processor()}",
    }


def _processor() -> str:
    """Digest of the instruction sets of this processor: host code is compiled for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    flags = next((line.split(":", 1)[1] for line in lines if line.startswith(("flags", "Features"))), "")
    return _hash(" ".join(sorted(flags.split())).encode())


def debug_flags() -> str:
    """The DSL's own settings that change what it makes, without the two that this package sets."""
    from cutlass.cutlass_dsl import CuTeDSL

    settings = CuTeDSL._get_dsl().envar.cache_key_str()
    return ";".join(s for s in settings.split(";") if s and not s.startswith(("arch=", "shared_libs=")))
