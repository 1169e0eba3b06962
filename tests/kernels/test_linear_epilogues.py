"""Ends of the block-scaled linear on the emulated sm_100a: what is refused, and that it equals linear and pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.linear import PackedSm100, Quantise, Quantised, Rotate, Swiglu, linear, pack_sm100
from kernels.linear.epilogues import Epilogue
from kernels.shared.formats import BlockFormat
from oracles import rope
from oracles.experts import swiglu
from oracles.formats import fp8, nvfp4, swizzle
from tests.kernels.test_linear_sm100 import close, tokens, weight

ONE = torch.ones(())


def plain(n: int = 32) -> PackedSm100:
    return pack_sm100(weight(n, 64)[0])


def paired(n: int = 32) -> PackedSm100:
    return pack_sm100([weight(n, 64, 1)[0], weight(n, 64, 2)[0]], interleaved=True)


def angles(m: int, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = rope.angles(11 * torch.arange(m), rope.frequencies(width))
    return cos.float(), sin.float()


# ---------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("packed", "epilogue", "message"),
    [
        (plain(), 3, "epilogue is a int; allowed: None, Quantise, Swiglu, Rotate"),
        (plain(), Quantise(), "epilogue global_scale is a NoneType"),
        (plain(), Quantise("int4", ONE), "format='int4'; allowed: nvfp4, fp8"),
        (plain(24), Quantise("nvfp4", ONE), "epilogue quantise: n=24; allowed: multiples of 16"),
        (plain(), Quantise("nvfp4", torch.ones(2)), r"epilogue global_scale.shape=\(2,\); allowed: one element"),
        (plain(), Quantise("fp8", ONE), "epilogue global_scale is given; allowed for fp8: None"),
        (plain(), Quantise("fp8", block=64), "epilogue quantise: n=32; allowed: multiples of 64"),
        (plain(), Quantise("fp8", block=16), "block=16; allowed for fp8: 32, 64, 128"),
        (plain(), Swiglu(), "packed.interleaved=False with epilogue Swiglu; allowed: True with Swiglu"),
        (paired(), Quantise("nvfp4", ONE), "packed.interleaved=True with epilogue Quantise"),
        (paired(), Swiglu(0.0), "epilogue swiglu: limit=0.0; allowed: a finite number above 0, or None"),
        (paired(), Swiglu(True), "epilogue Swiglu: limit=True"),
        (plain(), Rotate(*angles(2)), r"cos.shape=\(2, 32\); allowed: \(tokens, r / 2\) with 3 tokens"),
        (plain(), Rotate(*angles(3)), "epilogue rotate: n=32; allowed: multiples of head=512"),
        (plain(512), Rotate(*angles(3, 48)), "2 x the columns of cos = 48; allowed: 16, 32, 64, 128"),
        (plain(512), Rotate(*angles(3), head=96), "epilogue rotate: head=96; allowed: a multiple of 128"),
    ],
)
def test_ends_that_do_not_fit_are_refused(packed: PackedSm100, epilogue: Any, message: str, backend: Any) -> None:
    x = tokens(3, 64)[0]
    with backend.count() as counted, pytest.raises(ValueError, match=message):
        linear(x, packed, epilogue=epilogue, backend=backend)
    assert counted.launches == 0


def test_an_end_needs_its_own_roles_and_tiles() -> None:
    fp8_end = Epilogue("swiglu", BlockFormat("fp8", 128, "ue8m0"))
    assert fp8_end.rows == 256 and Epilogue("quantise", BlockFormat()).rows == 128
    assert "swapped=True; allowed: False" in fp8_end.problems((512,), False, True, 256)[0]
    assert "rows=128; allowed: at least 256" in fp8_end.problems((512,), False, False, 128)[0]
    assert r"parts=(64, 64), grouped=False; allowed: one part" in fp8_end.problems((64, 64), False, False, 256)[0]
    with pytest.raises(ValueError, match="swapped=True; allowed: False"):
        linear(tokens(3, 64)[0], plain(), epilogue=Quantise("nvfp4", ONE), swapped=True, backend=_Blackwell())


class _Blackwell:
    """A backend that nothing is launched on."""

    arch = "sm_100a"
    device = torch.device("cpu")


# ---------------------------------------------------------------------------- computed


def test_no_tokens_give_empty_outputs_without_a_launch(backend: Any) -> None:
    x = Quantised(torch.empty(0, 32, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8), ONE)
    one, two = plain(), paired()
    with backend.count() as counted:
        stored = linear(x, one, epilogue=Quantise("nvfp4", ONE, swizzled=True), backend=backend)
        h = linear(x, two, epilogue=Swiglu(), backend=backend)
    assert stored.codes.shape == (0, 16) and stored.scales.shape == (0,) and h.shape == (0, 32)
    assert counted.launches == 0


def test_quantised_outputs_go_to_the_given_tensors_and_padding_is_zero(backend: Any) -> None:
    (w, values), (x, x_values) = weight(80, 64), tokens(5, 64)
    y = (x_values @ values.T).float()
    g = nvfp4.global_scale(y)
    out = Quantised(torch.empty(5, 40, dtype=torch.uint8), torch.full((1024,), 255, dtype=torch.uint8))
    found = linear(x, pack_sm100(w), out=out, epilogue=Quantise("nvfp4", g, swizzled=True), backend=backend)
    codes, scales = nvfp4.quantize(y, g)
    assert found.codes is out.codes and torch.equal(found.codes, codes)
    assert torch.equal(out.scales, swizzle.swizzle(scales)) and found.global_scale is g
    with pytest.raises(ValueError, match=r"out.codes.shape=\(5, 40\); allowed: \(5, 48\)"):
        linear(x, plain(96), out=out, epilogue=Quantise("nvfp4", g), backend=backend)
    with pytest.raises(ValueError, match="out is a Tensor; allowed: a Quantised"):
        linear(x, pack_sm100(w), out=out.codes, epilogue=Quantise("nvfp4", g), backend=backend)


def test_fp8_blocks_and_swiglu_meet(backend: Any) -> None:
    (gate, gates), (up, ups), (x, x_values) = weight(128, 64, 1), weight(128, 64, 2), tokens(4, 64)
    h = swiglu(x_values @ gates.T, x_values @ ups.T, limit=0.5)
    packed = pack_sm100([gate, up], interleaved=True)
    found = linear(x, packed, epilogue=Swiglu(0.5, Quantise("fp8")), backend=backend)
    codes, scales = fp8.quantize_1x128(h.float())
    assert torch.equal(found.codes, codes) and torch.equal(found.scales, scales) and found.global_scale is None
    out = torch.empty(4, 128, dtype=torch.bfloat16)
    assert linear(x, packed, out=out, epilogue=Swiglu(0.5), backend=backend) is out and close(out, h)


@pytest.mark.parametrize("inverse", [False, True])
def test_heads_are_turned_by_the_angles_of_their_token(inverse: bool, backend: Any) -> None:
    (w, values), (x, x_values) = weight(256, 64), tokens(3, 64)
    cos, sin = angles(3, 32)
    y = linear(x, pack_sm100(w), epilogue=Rotate(cos, sin, head=128, inverse=inverse), backend=backend)
    heads = (x_values @ values.T).view(3, 2, 128)
    assert close(y, rope.rotate(heads, cos[:, None], sin[:, None], inverse=inverse).view(3, 256))
