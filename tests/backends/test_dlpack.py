"""Torch tensors as the DSL sees them."""

from __future__ import annotations

import cutlass
import pytest
import torch

from backends import dlpack, key

CPU = torch.device("cpu")


def layout(t: torch.Tensor, **options) -> str:
    """The type as the DSL prints it."""
    with key._mlir_context():
        return str(dlpack.present(t, "x", device=CPU, **options).mlir_type)


@pytest.mark.parametrize(
    "t, options, expected",
    [
        (torch.zeros(4, 8), {}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(8, 4).t(), {}, 'f32, gmem, align<16>, "(?,?):(1,?{i64})"'),
        (torch.zeros(4, 1), {}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(1, 1), {}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(0, 8), {}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(8, 0), {}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(8, 8)[:, ::2], {}, 'f32, gmem, align<16>, "(?,?):(?{i64},?{i64})"'),
        (torch.zeros(2, 3, 4), {}, 'f32, gmem, align<16>, "(?,?,?):(?{i64},?{i64},1)"'),
        (torch.zeros(()), {}, 'f32, gmem, align<16>, "():()"'),
        (torch.zeros(4, 8), {"dynamic": False}, 'f32, gmem, align<16>, "(4,8):(8,1)"'),
        (torch.zeros(4, 8), {"align": 64}, 'f32, gmem, align<64>, "(?,?):(?{i64},1)"'),
        (torch.zeros(4, 8), {"leading_dim": -1}, 'f32, gmem, align<16>, "(?,?):(?{i64},1)"'),
        # One column of a wider matrix: its stride is 8, but nothing is ever a stride apart.
        (torch.zeros(4, 8)[:, :1].t(), {"leading_dim": 0}, 'f32, gmem, align<16>, "(?,?):(1,?{i64})"'),
        (torch.zeros(4, 8), {"divisibility": {1: 8}}, 'f32, gmem, align<16>, "(?,?{div=8}):(?{i64},1)"'),
        (torch.zeros(4, 8, dtype=torch.float8_e4m3fn), {}, 'f8E4M3FN, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(4, 8, dtype=torch.float8_e8m0fnu), {}, 'f8E8M0FNU, gmem, align<16>, "(?,?):(?{i64},1)"'),
        (torch.zeros(4, 8, dtype=torch.bool), {}, 'i8, gmem, align<16>, "(?,?):(?{i64},1)"'),
    ],
)
def test_layouts(t, options, expected):
    assert layout(t, **options) == f"!cute.memref<{expected}>"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float4_e2m1fn_x2])
def test_bytes_of_four_bit_values_double_the_extent(dtype):
    t = torch.zeros(4, 16, dtype=torch.uint8).view(dtype)
    presented = dlpack.present(t, "w", device=CPU, element_type=cutlass.Float4E2M1FN)
    assert presented.shape == (4, 32) and presented.stride == (32, 1)
    assert presented.element_type is cutlass.Float4E2M1FN
    assert presented.region.nbytes == 64


def test_the_memory_is_shared_and_named():
    t = torch.arange(12.0).reshape(3, 4)[:, 1:3]
    # Two columns of a row-major matrix: from element 1 to element 10.
    found = dlpack.region(t, "kv", writable=False)
    assert (found.address, found.nbytes) == (t.data_ptr(), 10 * 4)
    assert (found.name, found.writable, found.shape, found.dtype) == ("kv", False, (3, 2), "float32")
    presented = dlpack.present(dlpack.aligned_empty((3, 4), torch.float32), "out", device=CPU)
    assert presented.data_ptr == presented.region.address == presented.region.owner.data_ptr()
    assert dlpack.region(torch.zeros(0, 5), "none").nbytes == 0
    assert dlpack.region(torch.zeros(3, 1, dtype=torch.int64).expand(3, 7), "same").nbytes == 24


def test_a_tensor_with_a_gradient_is_accepted():
    assert dlpack.present(torch.zeros(4, requires_grad=True), "x", device=CPU).shape == (4,)


@pytest.mark.parametrize(
    "t, options, message",
    [
        (dlpack.aligned_empty((64,), torch.float32)[1:], {}, r"tensor kv: address 0x\w+ is not a multiple of 16 bytes"),
        (dlpack.aligned_empty((64,), torch.uint8)[8:], {}, r"tensor kv: .*multiple of 16 .*storage offset"),
        (torch.zeros(4), {"align": 24}, "tensor kv: align=24 must be a power of two"),
        (torch.zeros(4), {"align": 0}, "tensor kv: align=0 must be a power of two"),
        (torch.zeros(4, device="meta"), {}, "tensor kv is on meta, this backend's tensors live on cpu"),
        (torch.zeros(4, 8), {"leading_dim": 0}, r"tensor kv: leading_dim=0 has stride 8, not 1; shape \(4, 8\)"),
        (torch.zeros(4, 8), {"leading_dim": 2}, "tensor kv: leading_dim=2 is outside a tensor of 2 modes"),
        (torch.zeros(4, 9), {"divisibility": {1: 8}}, "tensor kv: mode 1 has 9 elements, which 8 does not divide"),
        (torch.zeros(4), {"element_type": cutlass.Float4E2M1FN}, "tensor kv: .*Float4E2M1FN packs two .*float32"),
    ],
)
def test_bad_tensors_are_named(t, options, message):
    with pytest.raises(ValueError, match=message):
        dlpack.present(t, "kv", device=CPU, **options)


def test_pointers():
    t = dlpack.aligned_empty((4, 8), torch.bfloat16)
    pointer = dlpack.point(t, "page", device=CPU, align=32)
    with key._mlir_context():
        assert str(pointer.mlir_type) == "!cute.ptr<bf16, gmem, align<32>>"
    assert pointer.region.nbytes == 64
    as_bytes = dlpack.point(t, "page", device=CPU, element_type=cutlass.Uint8)
    assert as_bytes.dtype is cutlass.Uint8
    with pytest.raises(ValueError, match="tensor page: address"):
        dlpack.point(t[:, 1:], "page", device=CPU)


def test_regions_are_found_inside_containers():
    from dataclasses import dataclass

    @dataclass
    class Pair:
        k: object
        v: object

    a, b, c, d = (dlpack.present(dlpack.aligned_empty((4,), torch.float32), n, device=CPU) for n in "abcd")
    found = dlpack.regions((a, [b, 3], {"x": c}, Pair(d, None), "text"))
    assert [r.name for r in found] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_aligned_empty(dtype):
    t = dlpack.aligned_empty((3, 5), dtype)
    assert t.shape == (3, 5) and t.dtype is dtype and t.is_contiguous()
    assert t.data_ptr() % 256 == 0
    assert bool((t.view(torch.uint8) == 0xFF).all())
    assert dlpack.aligned_empty((3, 0), dtype).shape == (3, 0)
    assert dlpack.aligned_empty((), dtype).shape == ()
