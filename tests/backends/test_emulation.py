"""Launches on the emulated backend: what the engine gets, and what comes back."""

from __future__ import annotations

import importlib.util
import struct

import cutlass
import numpy as np
import pytest
import torch

import backends
from backends.emulation import EmulatedBackend
from backends.runtime.door import UnknownImage
from tests.backends.sample_kernels import AddScaled, Hidden, TmaAdd


def vectors(backend, n: int = 300) -> list[torch.Tensor]:
    return [backend.empty((n,), torch.float32) for _ in range(3)]


def pointer(parameter: bytes) -> int:
    return struct.unpack("<Q", parameter[:8])[0]


def test_the_engine_gets_the_launch(backend, recorder):
    x, y, z = vectors(backend)
    args = [backend.tensor(t, n) for t, n in ((x, "x"), (y, "y"), (z, "z"))]
    compiled = backend.compile(AddScaled(), *args, backend.stream())
    backend.policy, backend.seed, backend.arithmetic, backend.watchdog = "random", 7, "exact", 1000
    backend.listeners = (print,)
    backend.launch(compiled, *args, backend.stream())
    [launch] = recorder.launches
    assert backend.last_launches == [launch]
    assert launch["entry"] == compiled.kernels[0] and launch["module"].target == backend.arch
    assert (launch["grid"], launch["block"], launch["cluster"]) == ((3, 1, 1), (128, 1, 1), (1, 1, 1))
    assert launch["shared_bytes"] == 0 and launch["multiprocessors"] == 4
    assert (launch["policy"], launch["seed"], launch["arithmetic"], launch["watchdog"]) == ("random", 7, "exact", 1000)
    assert launch["listeners"] == (print,)
    assert [pointer(p) for p in launch["parameters"]] == [x.data_ptr(), y.data_ptr(), z.data_ptr()]
    assert [struct.unpack("<i", p[8:12])[0] for p in launch["parameters"]] == [300, 300, 300]
    regions = {r.name: r for r in launch["memory"].regions}
    assert set(regions) == {"x", "y", "z"}
    assert (regions["z"].address, regions["z"].nbytes) == (z.data_ptr(), 1200)
    assert (regions["z"].shape, regions["z"].dtype, regions["z"].writable) == ((300,), "float32", True)


def test_bare_tensors_touched_ones_and_read_only_ones(backend, recorder):
    x, y, z = vectors(backend)
    given = (backend.tensor(x, "x", writable=False), y, z, backend.stream())
    compiled = backend.compile(AddScaled(), *given)
    backend.launch(compiled, *given, touches={"table": torch.zeros(5, dtype=torch.int64)})
    regions = {r.name: r for r in recorder.launches[0]["memory"].regions}
    assert set(regions) == {"x", "argument 1", "argument 2", "table"}
    assert not regions["x"].writable and regions["argument 2"].writable
    assert regions["table"].nbytes == 40


def test_settings_that_are_not_set_are_left_to_the_engine(blackwell, recorder):
    x = vectors(blackwell)
    compiled = blackwell.compile(AddScaled(), *x, blackwell.stream())
    blackwell.launch(compiled, *x, blackwell.stream())
    assert recorder.launches[0]["policy"] == "in_order" and recorder.launches[0]["seed"] == 0
    assert "watchdog" not in recorder.launches[0] and "arithmetic" not in recorder.launches[0]


def test_tensors_without_elements(blackwell, recorder):
    x = vectors(blackwell, 8)
    compiled = blackwell.compile(AddScaled(), *x, blackwell.stream())
    empty = vectors(blackwell, 0)
    blackwell.launch(compiled, *empty, blackwell.stream())
    assert recorder.launches[0]["grid"] == (0, 1, 1)
    assert [r.nbytes for r in recorder.launches[0]["memory"].regions] == [0, 0, 0]


def test_two_variants_of_one_kernel_name_run_their_own_ptx(backend, recorder):
    x = vectors(backend, 32)
    two, three = (backend.compile(Hidden(scale), *x, backend.stream()) for scale in (2.0, 3.0))
    assert two.kernels == three.kernels and two.ptx != three.ptx
    for compiled in (two, three, two):
        backend.launch(compiled, *x, backend.stream())
    assert [launch["module"].source == two.ptx for launch in recorder.launches] == [True, False, True]
    assert recorder.launches[1]["module"].source == three.ptx


def test_the_tensor_map_of_a_tma_kernel(backend, recorder):
    a, c = (backend.empty((40, 36), torch.float32) for _ in range(2))
    compiled = backend.compile(TmaAdd(), a, c, backend.stream())
    backend.launch(compiled, a, c, backend.stream())
    [launch] = recorder.launches
    assert launch["grid"] == (3, 2, 1) and launch["shared_bytes"] >= 16 * 32 * 4 + 8
    tensor_map = launch["parameters"][0]
    assert len(tensor_map) == 128
    from emulator.memory.tensormap import TensorMap

    decoded = TensorMap.decode(tensor_map)
    assert (decoded.address, decoded.element.name) == (a.data_ptr(), "f32")
    assert (decoded.dims, decoded.strides, decoded.box) == ((36, 40), (144,), (32, 16))
    assert decoded.swizzle == 0 and not decoded.nan_fill


def test_the_engines_exception_comes_back_itself(backend, recorder):
    from emulator.errors import Deadlock

    x = vectors(backend)
    compiled = backend.compile(AddScaled(), *x, backend.stream())
    recorder.fail = Deadlock(compiled.kernels[0], 12, [], ["nobody arrives"])
    with pytest.raises(Deadlock, match="nobody arrives") as caught:
        backend.launch(compiled, *x, backend.stream())
    assert caught.value is recorder.fail and caught.value.instructions == 12
    assert backend.last_launches == []
    recorder.fail = None
    backend.launch(compiled, *x, backend.stream())
    assert len(backend.last_launches) == 1


def test_an_interrupt_stops_a_launch(blackwell, recorder):
    x = vectors(blackwell)
    compiled = blackwell.compile(AddScaled(), *x, blackwell.stream())
    recorder.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        blackwell.launch(compiled, *x, blackwell.stream())


def test_a_misaligned_tensor_is_named_before_anything_runs(blackwell, recorder):
    x = vectors(blackwell)
    compiled = blackwell.compile(AddScaled(), *x, blackwell.stream())
    with pytest.raises(ValueError, match="tensor argument 1: address .* is not a multiple of 16 bytes"):
        blackwell.launch(compiled, x[0], x[1][1:], x[2], blackwell.stream())
    assert recorder.launches == []


def test_a_foreign_object_has_no_known_ptx(blackwell, cache, recorder):
    """An object that another cache made, loaded without its PTX: an error, and never another kernel's result."""
    from backends import dsl

    x = vectors(blackwell, 32)
    compiled = blackwell.compile(Hidden(11.0), *x, blackwell.stream())
    arguments = [blackwell.tensor(t, "x") for t in x]
    blackwell._door._images.clear()  # as in a process that has not seen the image
    with pytest.raises(UnknownImage, match=f"kernel {compiled.kernels[0]} belongs to an image"):
        with blackwell._door.serve(blackwell):
            dsl.load(compiled.folder, "", blackwell.arch, blackwell.library)(*arguments, blackwell.stream())
    assert recorder.launches == []


def test_ptx_that_lacks_the_entry_is_an_error(cache, recorder):
    def parse(ptx):
        from emulator.ptx import parse

        return parse(ptx.replace("kernel_", "another_"))

    made = backends.get("emulated", cache=cache, run=recorder, parse=parse)
    x = vectors(made, 32)
    with pytest.raises(UnknownImage, match="has no entry kernel_"):
        made.compile(Hidden(12.0), *x, made.stream())


def test_host_code_is_told_of_the_multiprocessors(cache, recorder):
    made = backends.get("emulated", "sm_90a", cache=cache, run=recorder, multiprocessors=9)
    assert made.multiprocessors == 9
    x = vectors(made)
    made.launch(made.compile(AddScaled(), *x, made.stream()), *x, made.stream())
    assert recorder.launches[0]["multiprocessors"] == 9


def test_counting_nests_and_adds_torch_operations(backend):
    x, y, z = vectors(backend)
    compiled = backend.compile(AddScaled(), x, y, z, backend.stream())
    with backend.count() as outer:
        x.zero_()
        with backend.count() as inner:
            backend.launch(compiled, x, y, z, backend.stream())
            out = backend.empty((1000,), torch.float32)
        (out + 1).sum().item()
        backend.synchronize()
    assert inner.kernels == list(compiled.kernels) and inner.launches == 1 and inner.syncs == 0
    assert outer.operations == ["zero_", "add", "sum"] and outer.launches == 4
    assert outer.sync_calls == ["item", "synchronize"] and outer.compiles == 0
    assert outer.peak_bytes >= 8000
    with backend.count() as after:
        pass
    assert (after.launches, after.syncs, after.peak_bytes) == (0, 0, 0)


def test_static_shared_memory_is_summed_with_alignment(blackwell):
    ptx = """
.version 8.8
.target sm_100a
.address_size 64
.shared .align 16 .b8 first[20];
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k()
{
 .shared .align 128 .b8 second[64];
 ret;
}
"""
    assert blackwell.static_shared(ptx, "an image", "k") == 128 + 64


def test_a_driver_tensor_map_has_the_hardwares_bits(blackwell):
    from emulator.memory.tensormap import TensorMap

    out = np.zeros(128, np.uint8)
    fields = (9, 0x7F0000000100, (64, 32), (128,), (64, 16), (1, 1), 0, 3, 2, 1)
    blackwell.encode_tensor_map(out.ctypes.data, fields)
    decoded = TensorMap.decode(out)
    assert (decoded.address, decoded.element.name, decoded.dims) == (0x7F0000000100, "bf16", (64, 32))
    assert (decoded.strides, decoded.box, decoded.swizzle, decoded.atomicity) == ((128,), (64, 16), 3, 0)
    assert decoded.nan_fill and decoded.l2 == 2
    blackwell.encode_tensor_map(out.ctypes.data, (*fields[:7], 6, 2, 0))
    assert (TensorMap.decode(out).swizzle, TensorMap.decode(out).atomicity) == (3, 3)
    with pytest.raises(ValueError, match="swizzle=7 must be 0 to 6"):
        blackwell.encode_tensor_map(out.ctypes.data, (*fields[:7], 7, 2, 0))


@pytest.mark.skipif(not importlib.util.find_spec("tvm_ffi"), reason="needs apache-tvm-ffi")
def test_tvm_ffi_functions_launch_and_raise(backend, recorder):
    x, y, z = vectors(backend)
    compiled = backend.compile(AddScaled(3), x, y, z, backend.stream(), options="--enable-tvm-ffi")
    assert compiled.tvm_ffi
    backend.launch(compiled, x, y, z, backend.stream())
    assert [pointer(p) for p in recorder.launches[0]["parameters"]] == [x.data_ptr(), y.data_ptr(), z.data_ptr()]
    assert {r.name for r in recorder.launches[0]["memory"].regions} == {"argument 0", "argument 1", "argument 2"}
    recorder.fail = KeyError("from the engine")
    with pytest.raises(KeyError) as caught:
        backend.launch(compiled, x, y, z, backend.stream())
    assert caught.value is recorder.fail
    fresh = backends.get("emulated", backend.arch, cache=backend.cache, run=recorder)
    assert isinstance(fresh, EmulatedBackend)
    assert fresh.compile(AddScaled(3), x, y, z, fresh.stream(), options="--enable-tvm-ffi").origin == "disk"


def test_evidence_and_device(backend):
    assert backend.name == "emulated" and backend.evidence == f"emulated {backend.arch}"
    assert backend.device == torch.device("cpu")
    assert int(backend.stream()) == 0
    assert cutlass.Int32(3).value == 3


@pytest.mark.parametrize("arch", backends.ARCHES)
@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_results_of_the_emulator(cache, arch, policy):
    """The whole way: torch tensors in, kernels of two variants of one name emulated, torch tensors out."""
    made = backends.get("emulated", arch, cache=cache, policy=policy)
    x, y, z = vectors(made)
    x.copy_(torch.arange(300.0))
    y.fill_(0.5)
    made.launch(made.compile(AddScaled(4), x, y, z, made.stream()), x, y, z, made.stream())
    assert torch.equal(z, torch.arange(300.0) + 2)
    for scale in (2.0, 3.0):
        out = made.empty((32,), torch.float32)
        made.launch(made.compile(Hidden(scale), x, y, out, made.stream()), x, y, out, made.stream())
        assert torch.equal(out, torch.arange(32.0) + 0.5 * scale)


@pytest.mark.parametrize("arch", backends.ARCHES)
@pytest.mark.parametrize("policy", ["in_order", "latest", "random"])
def test_a_tensor_copy_on_the_emulator(cache, arch, policy):
    made = backends.get("emulated", arch, cache=cache, policy=policy)
    for m, n in ((40, 36), (1, 4), (16, 32)):
        a, c = (made.empty((m, n), torch.float32) for _ in range(2))
        a.copy_(torch.arange(float(m * n)).reshape(m, n))
        made.launch(made.compile(TmaAdd(), a, c, made.stream()), a, c, made.stream())
        assert torch.equal(c, a + 1)
    assert len(made.last_launches) == 1


def test_a_write_past_the_end_is_a_fault_that_names_the_tensor(cache):
    from emulator.errors import MemoryFault

    made = backends.get("emulated", cache=cache)
    x, y = (made.empty((32,), torch.float32) for _ in range(2))
    short = made.empty((8,), torch.float32)
    compiled = made.compile(Hidden(1.0), x, y, made.empty((32,), torch.float32), made.stream())
    with pytest.raises(MemoryFault, match="past the end of argument 2"):
        made.launch(compiled, x, y, short, made.stream())
    readonly = made.tensor(made.empty((32,), torch.float32), "weights", writable=False)
    with pytest.raises(MemoryFault, match="read-only weights"):
        made.launch(compiled, x, y, readonly, made.stream())
