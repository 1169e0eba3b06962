"""Block-scaled linears on the emulated sm_100a: packing and its inverse, what is refused, what is empty, values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from emulator.views import Recorder
from kernels.linear import (
    PackedSm100,
    Quantise,
    Quantised,
    Weight,
    grouped_linear,
    linear,
    multi_linear,
    pack,
    pack_sm100,
    unpack_sm100,
)
from kernels.linear.sm100_config import LinearSm100Config
from kernels.linear.sm100_host import config_for
from kernels.linear.sm100_names import barriers, names, roles
from oracles.formats import nvfp4, swizzle

BF16 = torch.bfloat16


def weight(n: int, k: int, seed: int = 3) -> tuple[Weight, torch.Tensor]:
    """A weight and its values."""
    w = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 0.02
    scale = nvfp4.global_scale(w) * (1 + seed % 3)
    codes, scales = nvfp4.quantize(w, scale)
    return Weight(codes, scales, scale), nvfp4.dequantize(codes, scales, scale)


def tokens(m: int, k: int, seed: int = 4) -> tuple[Quantised, torch.Tensor]:
    """Tokens and their values."""
    x = torch.randn(m, k, generator=torch.Generator().manual_seed(seed)) + 0.3
    scale = nvfp4.global_scale(x)
    codes, scales = nvfp4.quantize(x, scale)
    return Quantised(codes, swizzle.swizzle(scales), scale), nvfp4.dequantize(codes, scales, scale)


def shaped(*parts: int, k: int = 4096, grouped: bool = False) -> PackedSm100:
    """A packed weight of which only the shapes matter."""
    nothing = torch.empty(0, dtype=torch.uint8)
    return PackedSm100(nothing, nothing, nothing, parts, k, grouped)


def close(y: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal but for a last bit here and there: sums are f32."""
    off = (y.double() - want).abs() > want.abs() * 2.0**-8 + want.abs().max() * 2.0**-20
    return y.dtype == BF16 and y.shape == want.shape and not bool(off.any())


# ---------------------------------------------------------------------------- packing


@pytest.mark.parametrize(("n", "k"), [(16, 16), (130, 48), (300, 1056)])
def test_unpack_is_the_exact_inverse(n: int, k: int) -> None:
    weights = [weight(n, k, seed)[0] for seed in range(2)] + [weight(n + 7, k, 2)[0]]
    packed = pack_sm100(weights)
    assert packed.codes.stride(0) % 16 == 0 and packed.codes.shape == (packed.rows, k // 2)
    for given, got in zip(weights, unpack_sm100(packed), strict=True):
        assert torch.equal(got.codes, given.codes) and torch.equal(got.scales, given.scales)
        assert given.alpha is not None and got.alpha == given.alpha


def test_gate_and_up_are_interleaved_and_come_apart_again() -> None:
    gate, up = weight(70, 96, 1)[0], weight(70, 96, 2)[0]
    packed = pack_sm100([gate, up], interleaved=True)
    assert packed.parts == (140,) and packed.alpha.tolist() == [float(w.alpha) for w in (gate, up)]
    assert torch.equal(packed.codes[0:140:2], gate.codes) and torch.equal(packed.codes[1:140:2], up.codes)
    for given, got in zip((gate, up), unpack_sm100(packed), strict=True):
        assert torch.equal(got.codes, given.codes) and torch.equal(got.scales, given.scales)
        assert got.alpha == given.alpha


def test_scales_lie_in_the_atoms_of_the_tensor_core_and_padding_is_zero() -> None:
    given, _ = weight(130, 528)
    packed = pack_sm100(given)
    assert torch.equal(packed.scales, swizzle.swizzle(given.scales))
    assert int(packed.codes[130:].max()) == 0
    swizzled = replace(given, scales=swizzle.swizzle(given.scales))
    assert torch.equal(pack_sm100(swizzled).scales, packed.scales)
    assert float(pack_sm100(replace(given, alpha=None)).alpha) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": torch.zeros(8, 40, dtype=torch.uint8).T}, "strides"),
        ({"codes": torch.zeros(8, 12, dtype=torch.uint8)}, "n=8, k=24; allowed: n at least 1, k a multiple of 16"),
        ({"codes": torch.zeros(8, 32)}, r"weights\[0\].codes is torch.float32"),
        ({"scales": torch.zeros(8, 5, dtype=torch.uint8)}, r"shape \(8, 4\), or the 128 x 4 swizzle, flat, of 512"),
        ({"scales": torch.zeros(513, dtype=torch.uint8)}, r"scales is torch.uint8 \(513,\)"),
        ({"alpha": torch.ones(2)}, r"alpha is torch.float32 \(2,\); allowed: one float32"),
        ({"alpha": torch.ones((), device="meta")}, "tensors on cpu, meta; allowed: one device"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_sm100(replace(weight(8, 64)[0], **change))


def test_weights_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weights have k=\[64, 96\]; allowed: at least one, all of one k"):
        pack_sm100([weight(8, 64)[0], weight(8, 96)[0]])
    with pytest.raises(ValueError, match=r"interleaved=True with weights of n=\[8, 9\]"):
        pack_sm100([weight(8, 64)[0], weight(9, 64)[0]], interleaved=True)
    with pytest.raises(ValueError, match="k=48; allowed: equal n, k a multiple of 64"):
        pack_sm100([weight(8, 48)[0]] * 2, grouped=True)
    wrong: Any = [3]
    with pytest.raises(ValueError, match=r"weights\[0\] is a int; allowed: kernels.linear.Weight"):
        pack_sm100(wrong)


# ---------------------------------------------------------------------------- configurations


def test_few_tokens_are_b_and_many_are_a() -> None:
    chosen = {m: config_for("linear", shaped(4096), m) for m in (1, 9, 64, 65, 129, 8192)}
    assert [(c.swapped, c.tokens) for c in chosen.values()] == [
        (True, 8),
        (True, 16),
        (True, 64),
        (False, 128),
        (False, 128),
        (False, 128),
    ]
    assert [c.columns for c in chosen.values()] == [8, 16, 64, 128, 128, 128]
    assert all(c.problems() == [] for c in chosen.values())


def test_the_budgets_are_arithmetic() -> None:
    few, many = LinearSm100Config((4096,), 4096, tokens=8), LinearSm100Config((4096,), 4096, False, False, rows=256)
    assert (few.stage_bytes, many.stage_bytes) == (16384 + 1024 + 2048 + 2048, 16384 + 32768 + 2048 + 4096)
    assert (few.accumulators, few.scales_a, few.scales_b, few.allocated) == (2, 16, 32, 64)
    assert (many.accumulators, many.scales_a, many.scales_b, many.allocated) == (1, 256, 272, 512)
    assert (few.k_tiles, few.weight_tiles, many.weight_tiles) == (16, 32, 16)
    assert "= 48 columns, allocated as 64 of 512" in few.budget()[1]
    assert "pipeline ring: 4 stages, 21504 bytes a stage" in few.budget()[2]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LinearSm100Config((16,), 40), "k=40; allowed: a multiple of 16"),
        (LinearSm100Config((16, 16), 96, grouped=True), "k=96; allowed: a multiple of 64"),
        (LinearSm100Config((16, 32), 64, grouped=True), r"parts=\(16, 32\) with grouped=True; allowed: equal ones"),
        (LinearSm100Config((), 64), r"parts=\(\); allowed: at least one"),
        (LinearSm100Config((16,), 64, tokens=24), "tokens=24 with swapped=True; allowed: 8, 16, 32, 64, 128, 256"),
        (LinearSm100Config((16,), 64, swapped=False, tokens=64), "tokens=64 with swapped=False; allowed: 128"),
        (LinearSm100Config((16,), 64, rows=256), "rows=256 with swapped=True; allowed: 128"),
        (LinearSm100Config((16, 16), 64, True, False, rows=256), "a tile would span two groups of 16 rows"),
        (LinearSm100Config((16,), 64, stages=40), "stages=40; allowed: 1 to 6 of 36864 bytes"),
        (
            LinearSm100Config((16,), 512, tokens=8, split=4),
            "split=4 with k=512; allowed: 1, 2, 4, 8, at most one a 256",
        ),
        (LinearSm100Config((16,), 512, tokens=64, split=2), "split=2 with swapped=True, tokens=64; allowed beyond 1"),
    ],
)
def test_what_no_kernel_can_be_is_refused(config: LinearSm100Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        raise ValueError("; ".join(config.problems()))


def test_few_tiles_share_their_k() -> None:
    shapes = {(1024, 4096): 8, (4096, 4096): 4, (32768, 1024): 1, (512, 512): 2}
    for (n, k), split in shapes.items():
        assert config_for("linear", shaped(n, k=k), 1, ctas=148).split == split
    assert config_for("linear", shaped(1024), 64, ctas=148).split == 1
    shared = config_for("linear", shaped(1024), 20, ctas=148)
    assert (shared.tokens, shared.split, shared.gathered_bytes) == (32, 8, 7 * 32 * 512)
    assert sum(shared.shared_bytes().values()) <= 232_448 and shared.stages == 4


def test_settings_that_no_configuration_has_are_refused() -> None:
    with pytest.raises(
        ValueError, match="settings warps; allowed on sm_100a: swapped, tokens, rows, stages, split, pdl, ctas"
    ):
        config_for("linear", shaped(128), 3, settings={"warps": 4})
    with pytest.raises(ValueError, match="tokens=8 with m=9; allowed below 128: at least m"):
        config_for("linear", shaped(128), 9, settings={"tokens": 8})


@pytest.mark.parametrize("settings", [{}, {"split": 4, "stages": 2, "ctas": 4}, {"swapped": False, "rows": 256}])
def test_names_cover_the_column_map_and_the_barriers(settings: dict[str, Any], backend: Any) -> None:
    packed = pack_sm100(weight(260, 1088)[0])
    config = config_for("linear", packed, 3, ctas=backend.multiprocessors, settings=settings)
    recorder = Recorder(**names(config))
    assert max(field.end for field in recorder.labels.fields) == config.scales_a + config.scale_columns
    assert sorted(roles(config)) == list(range(config.warps.threads // 32))
    backend.listeners = (recorder,)
    try:
        linear(tokens(3, 1088)[0], packed, backend=backend, **settings)
    finally:
        backend.listeners = ()
    found = recorder.recording.cta().barriers
    named = recorder.labels.barrier_names(list(found))
    assert barriers(config) == [named[offset] for offset in sorted(found)]
    counts = {named[offset]: count for offset, count in found.items()}
    assert counts["ring.full[0]"] == counts["ring.empty[0]"] == 1 and counts["sums.empty[0]"] == 128
    if config.split > 1:
        assert (counts["sums.arrived"], counts["sums.taken"]) == (128 * 3, 4)


# ---------------------------------------------------------------------------- refused tensors


def changed_x(**change: Any) -> Quantised:
    return replace(tokens(3, 64)[0], **change)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 64, dtype=BF16), "x is a Tensor; allowed on sm_100a: kernels.shared.quantised.Quantised"),
        (changed_x(codes=torch.zeros(3, 40, dtype=torch.uint8)), r"x.codes.shape=\(3, 40\); allowed: \(m, 32\)"),
        (changed_x(codes=torch.zeros(3, 32, dtype=torch.int8)), "x.codes.dtype=torch.int8; allowed: torch.uint8"),
        (changed_x(codes=torch.zeros(3, 64, dtype=torch.uint8)[:, ::2]), "x.codes has strides"),
        (changed_x(codes=torch.zeros(3, 40, dtype=torch.uint8)[:, :32]), "k a multiple of 32, or rows with room"),
        (changed_x(codes=torch.zeros(200, dtype=torch.uint8)[4:100].view(3, 32)), "x.codes.data_ptr"),
        (changed_x(scales=torch.zeros(3, 4, dtype=torch.uint8)), r"allowed: \(512,\), the 128 x 4 swizzle of \(3, 4\)"),
        (changed_x(scales=torch.zeros(1024, dtype=torch.uint8)), r"x.scales.shape=\(1024,\)"),
        (changed_x(scales=torch.zeros(1024, dtype=torch.uint8)[::2]), "x.scales has strides"),
        (changed_x(global_scale=None), "x.global_scale=None; allowed: one fp32 element on the device"),
        (changed_x(global_scale=torch.ones(2)), r"x.global_scale.shape=\(2,\); allowed: one element"),
        (changed_x(global_scale=torch.ones((), device="meta")), "x.global_scale.device=meta"),
    ],
)
def test_tokens_that_the_kernel_cannot_read_are_refused(x: Any, message: str, backend: Any) -> None:
    packed = pack_sm100(weight(16, 64)[0])
    with backend.count() as counted, pytest.raises(ValueError, match=message):
        linear(x, packed, backend=backend)
    assert counted.launches == 0


def test_packings_that_do_not_fit_are_refused(backend: Any) -> None:
    x, packed = tokens(3, 64)[0], pack_sm100(weight(16, 64)[0])
    both = pack_sm100([weight(16, 64)[0]] * 2)
    groups = pack_sm100([weight(16, 64)[0]] * 2, grouped=True)
    pair = pack_sm100([weight(16, 64)[0]] * 2, interleaved=True)
    hopper: Any = pack(weight(16, 64)[0])
    wrong = {
        "packed is a Packed; allowed on sm_100a: PackedSm100, from pack_sm100": hopper,
        r"packed has parts=\(16, 16\); allowed: one": both,
        "interleaved=True without an epilogue": pair,
        r"packed.codes has shape \(128, 16\)": replace(packed, codes=packed.codes[:, :16]),
        r"packed.codes has shape \(128, 32\), strides \(32, 1\); allowed: \(256, 32\)": replace(packed, parts=(129,)),
        r"packed.scales.shape=\(511,\); allowed: \(512,\)": replace(packed, scales=packed.scales[:-1]),
        "packed.alpha.dtype=torch.float64": replace(packed, alpha=packed.alpha.double()),
    }
    for message, given in wrong.items():
        with pytest.raises(ValueError, match=message):
            linear(x, given, backend=backend)
    with pytest.raises(ValueError, match="multi_linear: packed.grouped=True; allowed: False"):
        multi_linear(x, groups, backend=backend)
    with pytest.raises(ValueError, match="grouped_linear: packed.grouped=False; allowed: True"):
        grouped_linear(x, both, backend=backend)
    with pytest.raises(ValueError, match="activation='e4m3'; allowed on sm_100a: none"):
        linear(x, packed, activation="e4m3", backend=backend)
    for out, message in (
        (torch.empty(3, 17, dtype=BF16), r"out.shape=\(3, 17\); allowed: \(3, 16\)"),
        (torch.empty(3, 16), "out.dtype=torch.float32; allowed: torch.bfloat16"),
    ):
        with pytest.raises(ValueError, match=message):
            linear(x, packed, out=out, backend=backend)


def test_hopper_has_no_epilogues() -> None:
    class Hopper:
        arch = "sm_90a"

    with pytest.raises(ValueError, match="epilogue is a Quantise; allowed on sm_90a: None"):
        linear(torch.zeros(1, 64, dtype=BF16), pack(weight(16, 64)[0]), epilogue=Quantise(), backend=Hopper())


# ---------------------------------------------------------------------------- what is computed


def test_no_tokens_give_an_empty_output_without_a_launch(backend: Any) -> None:
    x = Quantised(torch.empty(0, 32, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8), torch.ones(()))
    one, two = pack_sm100(weight(20, 64)[0]), pack_sm100([weight(20, 64)[0], weight(7, 64)[0]])
    with backend.count() as counted:
        y, parts = linear(x, one, backend=backend), multi_linear(x, two, backend=backend)
    assert y.shape == (0, 20) and [tuple(p.shape) for p in parts] == [(0, 20), (0, 7)]
    assert counted.launches == 0


@pytest.mark.parametrize(
    ("m", "n", "k", "settings"),
    [
        (1, 200, 544, {"ctas": 1, "stages": 2}),
        (9, 200, 1088, {"split": 4, "ctas": 4, "stages": 2, "pdl": False}),
        (130, 136, 96, {"ctas": 1}),
        (130, 136, 96, {"swapped": True}),
        (131, 263, 64, {"rows": 256}),
    ],
)
def test_linear_is_the_product_of_the_quantised_values(
    m: int, n: int, k: int, settings: dict[str, Any], backend: Any
) -> None:
    (w, values), (x, x_values) = weight(n, k), tokens(m, k)
    out = torch.full((m, n), float("nan"), dtype=BF16)
    y = linear(x, pack_sm100(w), out=out, backend=backend, **settings)
    assert y is out and close(y, x_values @ values.T)


def test_an_output_that_starts_at_an_odd_place_is_written_element_by_element(backend: Any) -> None:
    (w, values), (x, x_values) = weight(16, 64), tokens(130, 64)
    room = torch.full((130 * 16 + 1,), float("nan"), dtype=BF16)
    y = linear(x, pack_sm100(w), out=room[1:].view(130, 16), backend=backend)
    assert close(y, x_values @ values.T) and bool(room[0].isnan())


def test_tokens_may_have_room_behind_their_rows(backend: Any) -> None:
    (w, values), (x, x_values) = weight(24, 48), tokens(5, 48)
    room = torch.full((5, 48), 0xFF, dtype=torch.uint8)
    room[:, :24] = x.codes
    y = linear(replace(x, codes=room[:, :24]), pack_sm100(w), backend=backend)
    assert close(y, x_values @ values.T)


def test_several_weights_and_groups(backend: Any) -> None:
    weights = [weight(n, 128, seed) for seed, n in enumerate((40, 130, 8))]
    x, values = tokens(5, 128)
    outputs = multi_linear(x, pack_sm100([w for w, _ in weights]), backend=backend)
    for y, (_, w) in zip(outputs, weights, strict=True):
        assert close(y, values @ w.T)
    groups = [weight(24, 64, seed) for seed in range(3)]
    x, values = tokens(5, 192)
    y = grouped_linear(x, pack_sm100([w for w, _ in groups], grouped=True), backend=backend)
    assert close(y, torch.stack([values[:, 64 * g : 64 * g + 64] @ w.T for g, (_, w) in enumerate(groups)], dim=1))


def test_a_nan_scale_is_nan_in_its_token_alone(backend: Any) -> None:
    (w, values), (x, x_values) = weight(16, 64), tokens(4, 64)
    scales = swizzle.unswizzle(x.scales, 4, 4)
    scales[2, 1] = 0x7F
    y = linear(replace(x, scales=swizzle.swizzle(scales)), pack_sm100(w), backend=backend)
    others = torch.tensor([0, 1, 3])
    assert bool(y[2].isnan().all()) and close(y[others], (x_values @ values.T)[others])


def test_small_global_scales_do_not_underflow_on_the_way(backend: Any) -> None:
    (w, values), (x, x_values) = weight(16, 64), tokens(2, 64)
    assert w.alpha is not None and x.global_scale is not None
    small = replace(x, global_scale=x.global_scale * 2.0**-60)
    less = replace(w, alpha=w.alpha * 2.0**-60)
    assert float(less.alpha) * float(small.global_scale) < 2.0**-135
    y = linear(small, pack_sm100(less), backend=backend)
    assert close(y * 2.0**60 * 2.0**60, x_values @ values.T)
