"""`emulated`: code that was written for a GPU, run as it stands."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.base_dsl.compiler import CompileOptions, Compiler
from cutlass.base_dsl.jit_executor import JitExecutor
from cutlass.cute.runtime import _Tensor, from_dlpack, make_fake_compact_tensor, make_ptr
from cutlass.cutlass_dsl import CuTeDSL, CuteExperimentalDSL, cuda_jit_executor, tvm_ffi_provider
from cutlass.utils import HardwareInfo

import backends
from backends import dlpack, emulated
from emulator.errors import MemoryFault
from tests.backends.test_common import add


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, by: cutlass.Float32):
    i, _, _ = cute.arch.thread_idx()
    j, _, _ = cute.arch.block_idx()
    y[32 * j + i] = x[32 * j + i] * by


@cute.jit
def scale(x, y, by: cutlass.Float32):
    scale_kernel(x, y, by).launch(grid=[cute.size(x) // 32, 1, 1], block=[32, 1, 1])


@cute.jit
def scale_pointers(x: cute.Pointer, y: cute.Pointer):
    layout = cute.make_layout(64)
    scale_kernel(cute.make_tensor(x, layout), cute.make_tensor(y, layout), cutlass.Float32(3)).launch(
        grid=[2, 1, 1], block=[32, 1, 1]
    )


def vectors(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(float(n)), torch.zeros(n)


def fake() -> object:
    return make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))


def state() -> list[object]:
    """Everything that `emulated` changes."""
    api = dlpack.capsule_pointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    owners = (
        torch.cuda,
        torch.library,
        torch.Tensor,
        _Tensor,
        CompileOptions,
        Compiler,
        JitExecutor,
        HardwareInfo,
        cuda_jit_executor.CudaDialectJitCompiledFunction,
        cuda_jit_executor.CudaDialectJitModule,
        tvm_ffi_provider.TVMFFIJitCompiledFunction,
        tvm_ffi_provider.TVMFFIJitCompiledFunctionWithKwargs,
        cuda_driver(),
        *(dsl._get_dsl().envar for dsl in (CuTeDSL, CuteExperimentalDSL)),
    )
    slots = [ctypes.c_void_p.from_address(api + 16 + 8 * i).value for i in range(5)]
    caches = [id(dsl._get_dsl().jit_cache) for dsl in (CuTeDSL, CuteExperimentalDSL)]
    options = {kind: option.value for kind, option in cute.compile._compile_options.options.items()}
    return [dict(os.environ), slots, caches, options, *(dict(vars(owner)) for owner in owners)]


def cuda_driver():
    from cuda.bindings import driver

    return driver


@pytest.mark.parametrize("arch", backends.ARCHES)
def test_a_direct_call(arch):
    with emulated(arch) as gpu:
        x, y = vectors()
        scale(x, y, 2.0)
        assert torch.equal(y, 2 * x)
        assert gpu.arch == arch and gpu.last_launches[0].grid == (2, 1, 1)
        scale(y, x, 0.5)
        assert torch.equal(x, torch.arange(64.0))


@pytest.mark.parametrize("arch", backends.ARCHES)
@pytest.mark.parametrize("options", ["", "--enable-tvm-ffi"])
def test_a_compiled_function(arch, options):
    with emulated(arch) as gpu:
        x, y = vectors()
        compiled = cute.compile(scale, fake(), fake(), cutlass.Float32(1), options=options)
        wrap = (lambda t: t) if options else from_dlpack
        if not options:
            compiled = cute.compile(scale, from_dlpack(x), from_dlpack(y), cutlass.Float32(1))
        compiled(wrap(x), wrap(y), 3.0)
        assert torch.equal(y, 3 * x)
        assert f".target {arch}" in compiled.__ptx__
        first = gpu.last_launches
        compiled(wrap(x), wrap(y), 4.0)
        assert torch.equal(y, 4 * x) and gpu.last_launches is not first and len(gpu.last_launches) == 1


def test_an_entry_of_the_cache_is_loaded_and_run_inside(blackwell, monkeypatch):
    built = add(blackwell)
    # As in a new process: none of its images has been seen.
    monkeypatch.setattr(blackwell._door, "_images", {})
    with emulated("sm_100a", cache=blackwell.cache) as gpu:
        loaded = add(gpu)
        assert (loaded.origin, loaded.key) == ("disk", built.key)
        x, y, out = (torch.full((8,), v) for v in (1.0, 2.0, 0.0))
        gpu.launch(loaded, x, y, out, gpu.stream())
    assert torch.equal(out, x + y)


def test_numpy_arrays():
    with emulated():
        x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        scale(from_dlpack(x), from_dlpack(y), 2.0)
        assert (y == 2 * x).all()


def test_settings_reach_the_engine_and_may_change(recorder):
    settings = dict(policy="random", seed=5, arithmetic="exact", listeners=(print,), watchdog=99, multiprocessors=7)
    with emulated(run=recorder, **settings) as gpu:
        x, y = vectors()
        scale(x, y, 2.0)
        [launch] = recorder.launches
        assert {name: launch[name] for name in settings} == settings
        assert HardwareInfo().get_device_multiprocessor_count() == 7
        assert HardwareInfo().get_max_active_clusters(2) == 3
        gpu.policy, gpu.listeners = "latest", ()
        scale(x, y, 2.0)
        assert recorder.launches[1]["policy"] == "latest" and recorder.launches[1]["listeners"] == ()


def test_contexts_nest_and_the_innermost_decides(recorder):
    x, y = vectors()
    with emulated("sm_100a", policy="latest", run=recorder) as outer:
        compiled = cute.compile(scale, from_dlpack(x), from_dlpack(y), cutlass.Float32(1))
        given = from_dlpack(x), from_dlpack(y), 2.0
        compiled(*given)
        with emulated("sm_90a", policy="random") as inner:
            assert CuTeDSL._get_dsl().envar.arch == "sm_90a"
            scale(x, y, 2.0)
            assert torch.equal(y, 2 * x) and inner.last_launches[0].policy == "random"
            y.zero_()
            compiled(*given)
            assert torch.equal(y, 2 * x) and len(recorder.launches) == 1
        assert CuTeDSL._get_dsl().envar.arch == "sm_100a"
        compiled(*given)
        assert [launch["policy"] for launch in recorder.launches] == ["latest", "latest"]
        assert outer.last_launches == recorder.launches[1:]


@pytest.mark.parametrize("torch_cuda", [False, True])
def test_everything_is_restored_even_after_an_exception(torch_cuda):
    before = state()
    with pytest.raises(ZeroDivisionError), emulated(torch_cuda=torch_cuda):
        assert state() != before
        x, y = vectors()
        with pytest.raises(KeyError), emulated("sm_90a", torch_cuda=torch_cuda):
            cute.compile(scale, from_dlpack(x), from_dlpack(y), cutlass.Float32(1))
            raise KeyError
        cute.compile(scale, from_dlpack(x), from_dlpack(y), cutlass.Float32(1))
        raise ZeroDivisionError
    assert state() == before
    with pytest.raises(ValueError, match="arch='sm_80' is not supported; allowed: sm_100a, sm_90a"):
        with emulated("sm_80"):
            pass
    assert state() == before


def test_an_access_outside_of_every_tensor_is_a_fault_in_each_kind_of_call():
    x, short = vectors()[0], torch.zeros(40)
    match = r"write of 4 bytes .* by lane 8 .* 0 bytes past the end of tensor \(float32 \[40\]\)"
    with emulated():
        with pytest.raises(MemoryFault, match=match):
            scale(x, short, 2.0)
        compiled = cute.compile(scale, from_dlpack(x), from_dlpack(x), cutlass.Float32(1))
        with pytest.raises(MemoryFault, match=match):
            compiled(from_dlpack(x), from_dlpack(short), 2.0)
        compiled = cute.compile(scale, fake(), fake(), cutlass.Float32(1), options="--enable-tvm-ffi")
        with pytest.raises(MemoryFault, match=match):
            compiled(x, short, 2.0)
        # The store of the second warp faults as a whole.
        assert torch.equal(short[:32], 2 * x[:32]) and not short[32:].any()


def test_what_torch_refuses_to_hand_over_is_its_own_error():
    with emulated():
        y = torch.zeros(64)
        compiled = cute.compile(scale, fake(), fake(), cutlass.Float32(1), options="--enable-tvm-ffi")
        with pytest.raises(RuntimeError, match="Cannot pack tensors on meta"):
            compiled(torch.empty(64, device="meta"), y, 2.0)
        compiled(torch.ones(64), y, 2.0)
        assert torch.equal(y, torch.full((64,), 2.0))


def test_views_are_reached_within_their_span():
    whole = torch.zeros(128)
    with emulated():
        with pytest.raises(MemoryFault, match=r"past the end of tensor \(float32 \[40\]\)"):
            scale(torch.ones(64), whole[32:72], 2.0)


def test_pointers_reach_live_storages_only():
    with emulated():
        x, y = vectors()
        parts = torch.zeros(4, 64)
        pointers = [make_ptr(cutlass.Float32, t.data_ptr(), cute.AddressSpace.gmem) for t in (x, y)]
        compiled = cute.compile(scale_pointers, *pointers)
        compiled(*pointers)
        assert torch.equal(y, 3 * x)
        # An address within a storage reaches all of that storage.
        compiled(pointers[0], make_ptr(cutlass.Float32, parts[2].data_ptr(), cute.AddressSpace.gmem))
        assert torch.equal(parts[2], 3 * x) and not parts[[0, 1, 3]].any()
        freed = make_ptr(cutlass.Float32, torch.zeros(1 << 20).data_ptr(), cute.AddressSpace.gmem)
        gc.collect()
        with pytest.raises(MemoryFault, match="outside every registered tensor"):
            compiled(pointers[0], freed)


def test_tensors_of_a_gpu_are_refused():
    class Elsewhere:
        device = torch.device("cuda", 0)

    with emulated(), pytest.raises(ValueError, match="the tensor is on cuda; emulated.. takes CPU tensors"):
        from_dlpack(Elsewhere())


def test_one_thread_at_a_time():
    found: list[BaseException] = []

    def enter() -> None:
        try:
            with emulated():
                pass
        except RuntimeError as error:
            found.append(error)

    with emulated():
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(found) == 1 and "another thread is inside emulated()" in str(found[0])
    enter()
    assert len(found) == 1


def test_the_gpu_runtime_and_the_stand_in_never_catch_the_calls_of_the_other():
    """Both libraries are visible to the whole process, in the order of their first use."""
    program = """
import sys, torch, backends
from tests.backends.test_context import scale, vectors
def on_gpu():
    try: scale(*vectors(), 2.0)
    except Exception as error: print("gpu", "cudaErrorInsufficientDriver" in str(error))
def on_emulator():
    with backends.emulated():
        x, y = vectors()
        scale(x, y, 2.0)
        print("emulator", torch.equal(y, 2 * x))
for step in sys.argv[1:]: globals()[step]()
"""
    if torch.cuda.is_available():
        pytest.skip("looks at how a missing driver is reported")
    for order in (("on_gpu", "on_emulator", "on_gpu"), ("on_emulator", "on_gpu", "on_emulator")):
        done = subprocess.run([sys.executable, "-c", program, *order], capture_output=True, text=True)
        assert done.stdout.split() == [w for step in order for w in (step[3:], "True")], done.stderr


def test_torch_cuda_claims_a_gpu_and_aligns_its_tensors():
    with emulated("sm_90a", torch_cuda=True, multiprocessors=6):
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_properties(0).multi_processor_count == 6
        assert torch.cuda.current_stream().cuda_stream == 0
        for made in (
            torch.zeros(3, 5, device="cuda"),
            torch.arange(7, device=torch.device("cuda:0")),
            torch.ones(9).cuda(),
            torch.ones(11).to("cuda"),
            torch.ones(13).to(device="cuda", dtype=torch.bfloat16),
            torch.ones(4, 4).to("cuda").t().contiguous(),
        ):
            assert made.is_cuda and made.device.type == "cpu"
            assert made.data_ptr() % 256 == 0 and made.storage_offset() == 0
        x = torch.arange(6.0, device="cuda").reshape(2, 3)
        x[1, 2] = 9
        assert x.sum() == 19 and x.view(-1)[5] == 9
        weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
        (weight * 2).sum().backward()
        assert weight.grad.tolist() == [2, 2, 2]
    assert not torch.zeros(1).is_cuda


def test_a_cuda_graph_of_launches():
    with emulated(torch_cuda=True) as gpu:
        x, y = vectors()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scale(x, y, 2.0)
            scale(y, x, 3.0)
        assert not y.any() and gpu.last_launches == []
        with gpu.count() as counters:
            graph.replay()
            graph.replay()
        assert len(counters.kernels) == 4
        assert torch.equal(x, 36 * torch.arange(64.0)) and torch.equal(y, 12 * torch.arange(64.0))
        with pytest.raises(NotImplementedError, match="launches only, not torch's mul, add"):
            with torch.cuda.graph(graph):
                scale(x, x * 2 + 1, 2.0)


def test_the_example_of_the_documentation(root, capsys):
    page = (root / "docs" / "emulated.md").read_text()
    [setup], [example] = re.findall(r"double:\n(.*?)-->", page, re.S), re.findall(r"```python\n(.*?)```", page, re.S)
    assert len([line for line in example.splitlines() if line]) == 5
    path = root / "build" / "test_example.py"
    path.parent.mkdir(exist_ok=True)
    imports = "import torch, cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack\n"
    path.write_text(imports + setup + example)
    try:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "example"})
    finally:
        path.unlink()
    total, instructions = capsys.readouterr().out.split()
    assert float(total) == 4032 and int(instructions) > 10
