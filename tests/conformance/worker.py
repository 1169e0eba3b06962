"""Runs cases of other packages in a process of their own, one for each package and architecture.

A process apart keeps what such a package changes when it is imported (quack gives CuTe's tensors other indexing) away
from the tests of our kernels, and its caches for one architecture away from those for the other.
Started as `python -m tests.conformance.worker MODULE ARCH ENGINE FOLDER`; reads names of cases, a line each, and
answers with a line of JSON. ENGINE is `fast` or `exact` (the emulator's arithmetic) or `gpu` (this machine's). With a
folder the outputs are left there, NAME.pt each.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import pytest

# Objects in the packages' own caches come without the PTX that the emulator needs.
ENVIRONMENT = {
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "0",
    "FLASH_ATTENTION_NUM_SMS": "4",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "QUACK_CACHE_ENABLED": "0",
    "TORCHDYNAMO_DISABLE": "1",
}
BOTH = ("sm_100a", "sm_90a")
BLACKWELL = ("sm_100a",)


class Case:
    """A function that calls kernels and gives (output, reference) pairs by name, with the largest rel_rms allowed for
    each: one number, or by name."""

    def __init__(self, function: Callable[[], Any], rel_rms: float | dict[str, float], arches: tuple[str, ...]) -> None:
        self.function = function
        self.rel_rms = rel_rms
        self.arches = arches

    def limit(self, output: str) -> float:
        return self.rel_rms[output] if isinstance(self.rel_rms, dict) else self.rel_rms


class Cases(dict[str, Case]):
    """The cases of one package, by name."""

    def add(
        self, rel_rms: float | dict[str, float], arches: tuple[str, ...] = BOTH, name: str = ""
    ) -> Callable[..., Any]:
        """Decorator: add a function under `name`, or its own."""

        def keep(function: Callable[[], Any]) -> Callable[[], Any]:
            self[name or function.__name__] = Case(function, rel_rms, arches)
            return function

        return keep

    def pairs(self) -> list[Any]:
        """(name, arch) for every case and each of its architectures."""
        return [
            pytest.param(name, arch, id=f"{name}-{arch}") for arch in BOTH for name in self if arch in self[name].arches
        ]


def installed(package: str, wanted: str) -> pytest.MarkDecorator:
    """Skip unless `package` is installed in the version that the tests were written for."""
    try:
        found = version(package)
    except PackageNotFoundError:
        found = "none"
    return pytest.mark.skipif(found != wanted, reason=f"needs {package}=={wanted} (installed: {found})")


class Worker:
    """The other end, in the tests' process."""

    def __init__(self, module: str, arch: str, engine: str = "fast", folder: str = "") -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.conformance.worker", module, arch, engine, folder]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
        )

    def run(self, name: str) -> dict[str, Any]:
        """The answer for a case. Raises RuntimeError when the process has died."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with {self._process.wait()} in {name}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def check(cases: Cases, name: str, answer: dict[str, Any]) -> None:
    """Fail unless the case ran and every output is within its limit. Its figures go to the captured output."""
    assert "error" not in answer, answer["error"]
    print(
        f"{name}: {answer['launches']} launches, {answer['instructions']} warp-instructions, {answer['seconds']:.1f} s"
    )
    assert answer["launches"] > 0 and answer["outputs"]
    for output, found in answer["outputs"].items():
        print(f"  {output}: {found}")
        assert not found["constant"], output
        assert found["rel_rms"] <= cases[name].limit(output), (output, found)


def _serve(module: str, arch: str, engine: str, folder: str) -> None:
    # The answers get the real standard output, everything that packages print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    import emulator
    from backends import emulated
    from conformance.measure import compare

    torch.set_num_threads(1)
    launches: list[Any] = []

    def run(*args: Any, **settings: Any) -> Any:
        launches.append(emulator.run(*args, **settings))
        return launches[-1]

    cases = importlib.import_module(module).CASES
    on_gpu = engine == "gpu"
    where: Any = contextlib.nullcontext() if on_gpu else emulated(arch, torch_cuda=True, run=run, arithmetic=engine)
    with where, _triton():
        for line in sys.stdin:
            launches.clear()
            begin = time.perf_counter()
            torch.manual_seed(0)
            try:
                pairs = cases[line.strip()].function()
                outputs = {name: vars(compare(*pair)) for name, pair in pairs.items()}
                answer = {"outputs": outputs, "launches": len(launches)}
                if folder:
                    kept = {name: pair[0].detach().cpu() for name, pair in pairs.items()}
                    torch.save(kept, os.path.join(folder, f"{line.strip()}.pt"))
            except Exception:
                answer = {"error": traceback.format_exc()}
            answer |= {"instructions": sum(launch.instructions for launch in launches)}
            answer |= {"seconds": time.perf_counter() - begin}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    # Objects of the packages end in no particular order at the interpreter's exit.
    os._exit(0)


@contextlib.contextmanager
def _triton() -> Iterator[None]:
    """quack imports triton without declaring it, for parts that aren't used here: an empty one if there is none."""
    if find_spec("triton") is None:
        import torch._dynamo  # noqa: F401  looks for triton itself

        class Anything(types.ModuleType):
            __path__: list[str] = []
            FileCacheManager = constexpr = object

            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                return lambda function=None, **settings: function or (lambda decorated: decorated)

        names = ("triton", "triton.language", "triton.runtime", "triton.runtime.cache", "triton.testing")
        modules = {name: Anything(name) for name in names}
        for name in names[1:]:
            parent, _, own = name.rpartition(".")
            setattr(modules[parent], own, modules[name])
        sys.modules.update(modules)
    yield


if __name__ == "__main__":
    _serve(*sys.argv[1:])
