"""The operators: what torch checks of them, their results against the kernels', tracing, errors, where they run."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import kernels.library as library
from kernels.library import backend_for, use
from kernels.linear import Quantise, Rotate, Swiglu, linear, pack, pack_sm100
from kernels.shared.quantised import Quantised
from tests.kernels.library.cases import Case, cases, results
from tests.kernels.passes import backend_for as emulated
from tests.kernels.passes import refused, values
from tests.kernels.test_linear import tokens, weight

CASES = cases()
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def hopper() -> Any:
    return emulated("sm_90a")


def backend_of(case: Case) -> Any:
    """Blackwell's own operators run there, all others on Hopper."""
    return emulated(case.arches[0])


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.op)
def test_torch_finds_nothing_wrong_and_the_kernel_gives_the_same(case: Case) -> None:
    backend = backend_of(case)
    with use(backend):
        torch.library.opcheck(case.overload, case.on(CPU))
        given = case.on(CPU)
        found = results(case.overload(*given)) or tuple(given[i] for i in case.written)
    want = case.direct(case.on(CPU), backend)
    assert len(found) == len(want) > 0
    for got, right in zip(found, want, strict=True):
        assert torch.equal(got, right)
    for position, (now, before) in enumerate(zip(given, case.arguments, strict=True)):
        if isinstance(before, torch.Tensor):
            assert torch.equal(now, before) == (position not in case.written)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.op)
def test_shapes_without_a_device_are_those_of_the_results(case: Case) -> None:
    with use(backend_of(case)):
        want = results(case.overload(*case.on(CPU)))
    mode = FakeTensorMode(shape_env=ShapeEnv())
    tensors = {id(a): mode.from_tensor(a) for a in case.arguments if isinstance(a, torch.Tensor)}
    with mode:
        found = results(case.overload(*(tensors.get(id(a), a) for a in case.arguments)))
    for got, right in zip(found, want, strict=True):
        assert (tuple(got.shape), got.stride(), got.dtype) == (tuple(right.shape), right.stride(), right.dtype)


@pytest.mark.parametrize(("swizzled", "rows"), [(False, 0), (False, 3), (True, 1), (True, 129)])
def test_scales_have_their_shape_for_any_number_of_rows(swizzled: bool, rows: int, hopper: Any) -> None:
    x = values(max(rows, 1), 80)[:rows]
    meta = library.quantize_nvfp4(x.to("meta"), torch.tensor(0.1, device="meta"), swizzled=swizzled)
    with use(hopper):
        real = library.quantize_nvfp4(x, torch.tensor(0.1), swizzled=swizzled)
    assert (meta.codes.shape, meta.scales.shape) == (real.codes.shape, real.scales.shape)
    assert real.codes.shape == (rows, 40) and real.scales.dtype == torch.uint8


def dequantised(x: Quantised) -> torch.Tensor:
    """Values of FP8 with fp32 scales, BF16."""
    codes = x.codes.view(torch.float8_e4m3fn).float().unflatten(1, (x.scales.shape[1], -1))
    return (codes * x.scales[..., None]).flatten(1).bfloat16()


def test_a_chain_is_one_graph_for_several_numbers_of_tokens(hopper: Any) -> None:
    packed, norm = [pack(weight(n, 256, seed=n)[0]) for n in (64, 48)], values(256, seed=9)
    both = pack([weight(n, 256, seed=n)[0] for n in (64, 48)])

    def chain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = dequantised(library.rmsnorm_quantize(x, norm, format="fp8", scale="fp32"))
        first, second = library.multi_linear(h, both)
        again = library.nvfp4_linear(h, packed[0])
        return library.rope(again, cos, sin) + first, second

    compiled = torch.compile(chain, backend="eager", fullgraph=True, dynamic=True)
    for count in (3, 2):
        angle = torch.arange(float(count))[:, None] * torch.linspace(0.1, 1.0, 16)
        given = (values(count, 256), angle.cos(), angle.sin())
        with use(hopper):
            want, found = chain(*given), compiled(*given)
            second = library.nvfp4_linear(
                dequantised(library.rmsnorm_quantize(given[0], norm, format="fp8", scale="fp32")), packed[1]
            )
        assert torch.equal(found[0], want[0]) and torch.equal(found[1], want[1]) and torch.equal(found[1], second)
        assert found[0].shape == (count, 64) and float(found[0].float().abs().amax()) > 0.01


def test_what_the_kernels_refuse_is_refused(hopper: Any) -> None:
    packed = pack(weight(40, 256)[0])
    grouped = pack([weight(40, 256)[0]] * 2, grouped=True)
    angle = torch.zeros(2, 16)
    with use(hopper):
        refused(
            lambda: library.nvfp4_linear(tokens(2, 240), packed), "linear: x is torch.bfloat16 (2, 240)", "(m, 256)"
        )
        refused(lambda: library.nvfp4_linear(tokens(2, 256), grouped), "packed has parts=(40, 40)", "one weight")
        refused(lambda: library.multi_linear(tokens(2, 256), grouped), "packed.grouped=True")
        refused(lambda: library.grouped_linear(tokens(2, 256), packed), "packed.grouped=False")
        refused(lambda: library.quantize_nvfp4(values(2, 24)), "k=24", "multiples of 16")
        refused(lambda: library.quantize_fp8(values(2, 128), block=48), "block=48", "32, 64, 128")
        refused(lambda: library.rmsnorm_quantize(values(2, 32), values(32)), "global_scale is a NoneType")
        refused(lambda: library.swiglu_quantize(values(2, 128), values(2, 128), format="int4"), "format='int4'")
        refused(lambda: library.rope(values(3, 64), angle, angle), "cos.shape=(2, 16)", "3 tokens")
        refused(lambda: library.mhc_post(values(2, 32), values(2, 4, 48), angle, angle), "y.shape=(2, 32)", "(2, 48)")


def test_a_chain_of_codes_is_one_graph() -> None:
    """On sm_100a codes go from pass to linear as they are."""
    norm, g = values(128, seed=9), torch.tensor(0.002)
    both = pack_sm100([weight(n, 128, seed=n)[0] for n in (40, 24)])
    down = pack_sm100(weight(32, 40 + 24, seed=1)[0])

    def chain(x: torch.Tensor) -> torch.Tensor:
        first, second = library.multi_linear_w4a4(library.rmsnorm_quantize(x, norm, g, swizzled=True), both)
        h = library.quantize_nvfp4(torch.cat((first, second), dim=1), g, swizzled=True)
        return library.nvfp4_linear_w4a4(h, down)

    compiled = torch.compile(chain, backend="eager", fullgraph=True, dynamic=True)
    with use(emulated("sm_100a")):
        for rows in (2, 5):
            x = values(rows, 128)
            want = chain(x)
            assert torch.equal(compiled(x), want) and want.shape == (rows, 32) and float(want.float().std()) > 0.01
        refused(lambda: library.nvfp4_linear_w4a4(Quantised(x, x), down), "nvfp4_linear_w4a4: x.global_scale=None")
        refused(lambda: library.nvfp4_linear_w4a4(Quantised(x, x, g), both), "parts=(40, 24)", "one weight")
        refused(lambda: library.grouped_linear_w4a4(Quantised(x, x, g), both), "packed.grouped=False")


def test_functions_of_endings_give_what_their_operators_give() -> None:
    """On the same tokens: functions take what the operators' tensors and numbers are taken from."""
    one, g = pack_sm100(weight(128, 128, seed=1)[0]), torch.tensor(0.02)
    pair = pack_sm100([weight(48, 128, seed=n)[0] for n in (2, 3)], interleaved=True)
    angle = torch.arange(3.0)[:, None] * torch.linspace(0.1, 1.0, 16)
    store = Quantise("nvfp4", g, True)
    with use(emulated("sm_100a")) as backend:
        x = library.quantize_nvfp4(values(3, 128), g, swizzled=True)
        found = [
            library.nvfp4_linear_quantize(x, one, store),
            library.nvfp4_linear_swiglu(x, pair, limit=0.5, store=store),
            library.nvfp4_linear_swiglu_bf16(x, pair, limit=0.5),
            library.nvfp4_linear_rope(x, one, angle.cos(), angle.sin(), head=128),
        ]
        endings = [store, Swiglu(0.5, store), Swiglu(0.5), Rotate(angle.cos(), angle.sin(), 128)]
        for got, ending in zip(found, endings, strict=True):
            want = linear(x, pair if isinstance(ending, Swiglu) else one, epilogue=ending, backend=backend)
            if isinstance(got, Quantised):
                assert torch.equal(got.codes, want.codes) and torch.equal(got.scales, want.scales)
                assert got.global_scale is g
            else:
                assert torch.equal(got, want) and got.shape in ((3, 48), (3, 128))
        refused(
            lambda: library.nvfp4_linear_rope(x, pair, angle, angle), "interleaved=True; allowed: one, False, False"
        )
        refused(
            lambda: library.nvfp4_linear_swiglu(x, one, store=store), "interleaved=False; allowed: one, False, True"
        )


def test_no_tokens_give_empty_results(hopper: Any) -> None:
    packed = pack([weight(n, 256)[0] for n in (40, 24)])
    with use(hopper), hopper.count() as counters:
        first, second = library.multi_linear(tokens(0, 256), packed)
        quantised = library.quantize_fp8(values(1, 128)[:0])
    assert (first.shape, second.shape, quantised.codes.shape) == ((0, 40), (0, 24), (0, 128))
    assert counters.kernels == []


def test_a_backend_is_in_use_inside_and_nowhere_else(hopper: Any) -> None:
    blackwell, x = emulated("sm_100a"), values(1, 32)
    refused(lambda: library.quantize_nvfp4(x), "quantize_nvfp4: the first tensor is on cpu", "a GPU's")
    with use(hopper) as given:
        assert given is hopper and backend_for("op", x) is hopper
        with pytest.raises(RuntimeError, match="stop"), use(blackwell):
            assert backend_for("op", x) is blackwell
            raise RuntimeError("stop")
        assert backend_for("op", x) is hopper
        elsewhere: list[str] = []
        thread = threading.Thread(target=lambda: elsewhere.append(_refusal(x)))
        thread.start()
        thread.join()
        assert "allowed: a GPU's" in elsewhere[0]
        refused(
            lambda: backend_for("op", x.to("meta")), "op: the first tensor is on meta", "or cpu, of the backend in use"
        )
    refused(lambda: backend_for("op", x), "allowed: a GPU's (kernels.library.use")


def _refusal(x: torch.Tensor) -> str:
    try:
        backend_for("op", x)
    except ValueError as error:
        return str(error)
    return ""


def test_gradients_are_refused(hopper: Any) -> None:
    x = values(1, 32).requires_grad_()
    with use(hopper):
        found = library.quantize_nvfp4(x, torch.tensor(0.1))
    assert not found.codes.requires_grad
