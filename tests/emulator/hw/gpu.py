"""Cases on the GPU of this machine, through cuda.bindings: the driver compiles the PTX itself.

`python -m tests.emulator.hw.gpu FILE NAME …` runs cases in one process, one after the other; `results` starts such
processes, because a fault ends a CUDA context and a kernel may never end.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.hw.case import Case, In, Map, Out, Result

PATIENCE = 25
"""Seconds for one case, the first one's start of CUDA included."""

_KINDS = {
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "s32": "INT32",
    "u64": "UINT64",
    "s64": "INT64",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "bf16": "BFLOAT16",
    "f32ftz": "FLOAT32_FTZ",
    "tf32": "TFLOAT32",
}
_ROOT = Path(__file__).resolve().parents[3]


def _ok(answer: tuple[Any, ...]) -> Any:
    if int(answer[0]):
        raise RuntimeError(str(answer[0]).rsplit(".", 1)[-1])
    return answer[1] if len(answer) == 2 else answer[1:]


class Gpu:
    """A context on GPU 0."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        _ok(driver.cuInit(0))
        _ok(driver.cuCtxSetCurrent(_ok(driver.cuDevicePrimaryCtxRetain(_ok(driver.cuDeviceGet(0))))))

    def load(self, text: str) -> Any:
        """The kernel `k` of a PTX text."""
        driver = self.driver
        log = bytearray(8192)
        option = driver.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        error, module = driver.cuModuleLoadDataEx(text.encode() + b"\0", 2, options, [log, len(log)])
        if int(error):
            raise RuntimeError(f"{str(error).rsplit('.', 1)[-1]}: {log.split(bytes(1))[0].decode()}")
        return _ok(driver.cuModuleGetFunction(module, b"k"))

    def run(self, case: Case) -> Result:
        """Launch a case and wait. A CUDA error is part of the result; the context is then of no more use."""
        driver = self.driver
        function = self.load(case.text)
        pointers: dict[int, Any] = {}
        for k, a in enumerate(case.arguments):
            if isinstance(a, (In, Out)):
                raw = a.bytes() if isinstance(a, Out) else np.ascontiguousarray(a.data).view(np.uint8).ravel()
                pointers[k] = _ok(driver.cuMemAlloc(raw.size))
                _ok(driver.cuMemcpyHtoD(pointers[k], raw.ctypes.data, raw.size))
        held = [
            self._parameter(a, int(pointers[k]) if k in pointers else 0, pointers) for k, a in enumerate(case.arguments)
        ]
        table = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
        try:
            self._launch(function, case, ctypes.addressof(table))
            _ok(driver.cuCtxSynchronize())
        except RuntimeError as error:
            return Result([], "", str(error))
        outputs = []
        for k, a in enumerate(case.arguments):
            if isinstance(a, Out):
                back = np.zeros(a.nbytes, np.uint8)
                _ok(driver.cuMemcpyDtoH(back.ctypes.data, pointers[k], a.nbytes))
                outputs.append(back)
        for pointer in pointers.values():
            _ok(driver.cuMemFree(pointer))
        return Result(outputs)

    def _parameter(self, a: Any, address: int, pointers: dict[int, Any]) -> Any:
        if isinstance(a, Map):
            return (ctypes.c_uint8 * 128).from_buffer_copy(self.encode(a, int(pointers[a.of])))
        return ctypes.c_uint32(a & 0xFFFFFFFF) if isinstance(a, int) else ctypes.c_uint64(address)

    def encode(self, a: Map, address: int) -> bytes:
        """A tensor map by the driver."""
        driver = self.driver
        u32, u64 = driver.cuuint32_t, driver.cuuint64_t
        head = (
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_KINDS[a.kind]}"),
            len(a.dims),
            address,
            [u64(n) for n in a.dims],
            [u64(n) for n in a.strides],
        )
        tail = (
            [u32(n) for n in a.steps or (1,) * len(a.dims)],
            driver.CUtensorMapInterleave(a.interleave),
            driver.CUtensorMapSwizzle(a.swizzle),
            driver.CUtensorMapL2promotion(0),
            driver.CUtensorMapFloatOOBfill(int(a.nan_fill)),
        )
        if a.pixels:
            made = driver.cuTensorMapEncodeIm2col(*head, list(a.lower), list(a.upper), a.box[0], a.pixels, *tail)
        else:
            made = driver.cuTensorMapEncodeTiled(*head, [u32(n) for n in a.box], *tail)
        return ctypes.string_at(int(_ok(made).getPtr()), 128)

    def _launch(self, function: Any, case: Case, table: int) -> None:
        driver = self.driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = case.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = case.block
        config.hStream = driver.CUstream(0)
        if case.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = case.cluster
            config.attrs, config.numAttrs = [attribute], 1
        _ok(driver.cuLaunchKernelEx(config, function, table, 0))


def _printing(gpu: Gpu, case: Case) -> Result:
    """Run a case and collect what the device prints to this process's standard output."""
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as sink:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(sink.fileno(), 1)
        try:
            result = gpu.run(case)
            libc.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        sink.seek(0)
        return Result(result.outputs, sink.read().decode(), result.error)


def child(file: str, names: list[str]) -> None:
    """Run the named cases; results go to FILE.<name>.npz, progress to standard output."""
    from tests.emulator.hw.cases import by_name

    gpu = Gpu()
    for name in names:
        case = by_name(name)
        print(json.dumps({"begin": name}), flush=True)
        try:
            result = _printing(gpu, case) if case.prints else gpu.run(case)
        except RuntimeError as error:
            result = Result([], "", f"not launched: {error}")
        np.savez(f"{file}.{name}.npz", *result.outputs)
        print(json.dumps({"end": name, "error": result.error, "printed": result.printed}), flush=True)
        if result.error and not result.error.startswith("not launched"):
            return


def results(cases: list[Case]) -> dict[str, Result]:
    """Every case on the GPU. A case that does not end within PATIENCE has the error `no end`."""
    found: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        left = [c.name for c in cases]
        while left:
            command = [sys.executable, "-m", "tests.emulator.hw.gpu", f"{folder}/result", *left]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
                at = _follow(process, folder, found)
            if at is None and not set(left) & set(found):
                raise RuntimeError(f"the GPU could not be used: the process ended with code {process.returncode}")
            if at is not None:
                found[at] = Result([], "", "no end")
            left = [name for name in left if name not in found]
    return found


def _follow(process: subprocess.Popen[str], folder: str, found: dict[str, Result]) -> str | None:
    at: str | None = None
    assert process.stdout is not None
    until = time.monotonic() + PATIENCE
    while True:
        if not select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            process.kill()
            return at
        line = process.stdout.readline()
        if not line:
            process.wait()
            return at
        record = json.loads(line)
        until = time.monotonic() + PATIENCE
        if "begin" in record:
            at = record["begin"]
            continue
        with np.load(f"{folder}/result.{record['end']}.npz") as held:
            outputs = [held[f"arr_{k}"] for k in range(len(held.files))]
        found[record["end"]] = Result(outputs, record["printed"], record["error"])
        at = None


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2:])
