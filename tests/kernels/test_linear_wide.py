"""The linear of many tokens: what its configurations may be, which one is chosen, what the emulated kernel computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import backends
from kernels.linear import config_for, grouped_linear, linear, multi_linear, pack
from kernels.linear.config import LinearConfig
from kernels.linear.layout import BF16_MASK, F16_SIGN, e2m1_words
from kernels.linear.wide_config import WideConfig
from kernels.linear.wide_unpack import POWERS
from oracles.formats import e2m1
from tests.kernels.test_linear import BF16, NoLaunch, hopper, refusal, shaped, stored, tokens, weight

__all__ = ["hopper"]

# ---------------------------------------------------------------------------- bits


def bf16(bits: torch.Tensor) -> torch.Tensor:
    """The values of 16-bit words held in wider integers."""
    return (bits << 16).to(torch.int64).to(torch.int32).view(torch.float32).double()


def test_the_bit_plan_reads_as_bf16_too() -> None:
    codes = torch.randint(0, 16, (1, 1, 2, 8, 128), generator=torch.Generator().manual_seed(5)).to(torch.uint8)
    word = (e2m1_words(codes).view(torch.int32).view(2, 8, 4, 4).to(torch.int64) & 0xFFFFFFFF).permute(1, 0, 3, 2)
    sources = ((word, word >> 3), (word << 3, word), (word << 1, word << 3), (word << 2, word << 6))  # g, j / 4, j, t
    for index, (sign, magnitude) in enumerate(sources):
        pair = (sign & F16_SIGN | magnitude & ~F16_SIGN) & BF16_MASK
        got = torch.stack((bf16(pair & 0xFFFF), bf16(pair >> 16)), dim=-1) * 2.0**126  # g, j / 4, j % 4, t, parity
        k = codes[0, 0, index % 2].view(8, 2, 4, 2, 4, 2)[:, :, :, index // 2]  # g, j / 4, j % 4, t, parity
        assert torch.equal(got, e2m1.decode(k))


def test_powers_are_powers() -> None:
    for exponent, bits in POWERS.items():
        assert float(bf16(torch.tensor(bits))) == 2.0**exponent


# ---------------------------------------------------------------------------- configurations

BASE = WideConfig("nvfp4", (300,), 2048, columns=64, across=1, along=2, split=2, units=2, stages=2)


def test_a_configuration_counts_its_block() -> None:
    assert BASE.problems() == []
    assert (BASE.tile_units, BASE.share, BASE.turns, BASE.block_tiles, BASE.blocks) == (16, 8, 4, 4, (5,))
    assert BASE.stage_bytes == 4 * 2 * 1152 + 4 * 64 * 128
    assert BASE.exchange_bytes == 2 * 64 * 64 * 4  # as many sums as its two warpgroups have
    assert replace(BASE, rows=8, k=4096).turn_halves == ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1))
    narrow = replace(BASE, columns=8, along=1, split=8, units=1, k=1024)
    assert narrow.slots * narrow.split * narrow.along * 512 == narrow.exchange_bytes == 4096  # 4 sums for 8 CTAs


def test_problems_name_the_value_and_what_is_allowed() -> None:
    assert replace(BASE, columns=24).problems() == [
        "columns=24 is not supported on sm90; supported: 8, 16, 32, 64, 128, 256"
    ]
    assert replace(BASE, across=4, along=4).problems()[0] == "across=4 with along=4; allowed: 4 warpgroups at most"
    assert "split x units divides the units" in replace(BASE, units=3).problems()[0]
    assert replace(BASE, stages=1).problems() == ["stages=1; allowed: at least 2 for 4 turns"]
    assert replace(BASE, ahead=3).problems() == ["ahead=3; allowed: 0 to the 2 half units of a warp in a stage"]
    assert replace(BASE, near=0).problems() == ["near=0; at least 1"]
    assert replace(BASE, k=24).problems()[0] == "k=24; allowed: positive multiples of 16"
    assert replace(BASE, stages=6, units=4, columns=128).problems()[0].startswith("shared memory: ring ")
    assert replace(BASE, parts=(64, 32), grouped=True).problems() == [
        "parts=(64, 32); allowed in a grouped linear: equal numbers of rows"
    ]


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4", "fp8"])
def test_every_shape_has_a_kernel(form: str) -> None:
    for n, k in ((1024, 4096), (512, 4096), (32768, 1024), (4096, 8192), (4096, 2048), (300, 4112), (40, 32)):
        for m in (5, 17, 33, 100, 300, 8192):
            config = config_for(replace(shaped(n, k), format=form), m)
            assert isinstance(config, WideConfig) and config.problems() == [], (n, k, m)


def test_measured_shapes_get_the_fastest() -> None:
    def chosen(n: int, k: int, m: int) -> tuple[int, ...]:
        config = config_for(shaped(n, k), m)
        assert isinstance(config, WideConfig)
        return tuple(getattr(config, f) for f in ("columns", "across", "along", "split", "units", "stages", "ahead"))

    assert chosen(512, 4096, 16) == (16, 1, 4, 8, 1, 1, 2) and chosen(1024, 4096, 16) == (16, 1, 2, 8, 2, 1, 3)
    assert chosen(1024, 4096, 4) == (8, 1, 2, 8, 2, 1, 4)
    assert chosen(32768, 1024, 16) == (16, 1, 1, 1, 2, 2, 1) and chosen(32768, 1024, 8) == (8, 1, 1, 1, 2, 2, 4)
    assert chosen(4096, 4096, 16) == (16, 1, 1, 4, 2, 2, 4) and chosen(4096, 4096, 8) == (8, 1, 4, 2, 4, 3, 2)
    assert chosen(4096, 8192, 16) == (16, 1, 4, 2, 4, 3, 0) and chosen(4096, 2048, 16) == (16, 1, 4, 1, 4, 3, 2)
    assert chosen(4096, 4096, 32) == (32, 1, 4, 2, 4, 3, 2) and chosen(4096, 4096, 64) == (64, 1, 2, 2, 2, 3, 2)
    assert chosen(4096, 4096, 256)[:4] == (128, 1, 2, 1) and chosen(4096, 4096, 4096)[:4] == (256, 2, 1, 1)


def test_settings_decide_where_only_one_kernel_has_them() -> None:
    packed = shaped(4096, 4096)
    assert isinstance(config_for(packed, 16, settings={"warps": 8}), LinearConfig)
    assert isinstance(config_for(packed, 2, settings={"columns": 8}), WideConfig)
    assert refusal(config_for, packed, 2, settings={"columns": 8, "warps": 8}).startswith("linear: settings warps and")
    assert refusal(config_for, packed, 17, settings={"warps": 8}) == (
        "linear: m=17 tokens; allowed with settings of LinearConfig: up to 16"
    )
    assert "allowed: split x units divides" in refusal(config_for, packed, 17, settings={"units": 3})


def test_no_tokens_and_refusals_launch_nothing() -> None:
    packed = pack(weight(40, 64)[0])
    assert "columns=9 is not supported" in refusal(linear, tokens(20, 64), packed, backend=NoLaunch(), columns=9)
    assert tuple(linear(tokens(0, 64), packed, backend=NoLaunch(), columns=8).shape) == (0, 40)


# ---------------------------------------------------------------------------- the kernel


def close(y: torch.Tensor, want: torch.Tensor) -> None:
    """Equal but for ties of the last rounding."""
    off = (y.double() - want.double()).abs()
    assert float((off / want.double().abs().clamp_min(1e-3)).max()) <= 2.0**-7
    assert int((off > 0).sum()) <= max(1, y.numel() // 100)


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "settings"),
    [
        (21, 150, 528, 16, {}),
        (19, 40, 1040, 8, {"columns": 8, "across": 1, "split": 1}),
        (35, 70, 512, 4, {"columns": 32, "split": 1}),
    ],
)
def test_products_are_exact(hopper: Any, m: int, n: int, k: int, rows: int, settings: dict[str, int]) -> None:
    given, values = weight(n, k)
    close(linear(tokens(m, k), pack(given, rows=rows), backend=hopper, **settings), stored(tokens(m, k), values))


def test_scales_of_every_size(hopper: Any) -> None:
    given, _ = weight(16, 128)
    scales = torch.arange(128, dtype=torch.uint8).view(16, 8)
    scales[scales == 127] = 126
    codes = torch.arange(16, dtype=torch.uint8).repeat(64).view(16, 64) * 17
    packed = pack(replace(given, codes=codes, scales=scales, alpha=None), rows=16)
    values = e2m1.decode(codes & 15).repeat_interleave(2, dim=1)  # both nibbles of a byte are the same
    values = values * scales.view(torch.float8_e4m3fn).double().repeat_interleave(16, dim=1)
    x = torch.zeros(20, 128, dtype=BF16)
    x[torch.arange(20), torch.arange(20) * 6] = 2.0**-20
    assert torch.equal(linear(x, packed, backend=hopper).double(), x.double() @ values.T)


def test_scales_of_mxfp4_to_the_last_subnormal(hopper: Any) -> None:
    given, _ = weight(16, 64, "mxfp4")
    scales = torch.tensor([[0, 1], [2, 127], [128, 254], [130, 255]], dtype=torch.uint8).repeat(4, 1)
    packed = pack(replace(given, scales=scales), format="mxfp4", rows=16)
    x = torch.zeros(20, 64, dtype=BF16)
    x[0, :32], x[1, 32:] = 2.0**10, 2.0**-20
    values = e2m1.decode(torch.stack((given.codes & 15, given.codes >> 4), dim=-1).flatten(1))
    y = linear(x, packed, backend=hopper)
    want = x.double() @ (values * torch.exp2(scales.double() - 127).repeat_interleave(32, dim=1)).T
    finite = (scales[:, 1] != 255).nonzero()[:, 0]
    assert torch.equal(y[:, finite], want[:, finite].to(BF16))
    assert bool(y[:, 3].isnan().all())  # 255 is NaN


def test_outputs_land_in_the_given_tensor_and_repeat(hopper: Any) -> None:
    packed, x, out = pack(weight(40, 512)[0], rows=16), tokens(20, 512), torch.full((20, 40), math.nan, dtype=BF16)
    assert linear(x, packed, out=out, backend=hopper) is out
    strided = torch.full((20, 520), math.nan, dtype=BF16)
    strided[:, :512] = x
    assert torch.equal(out, linear(strided[:, :512], packed, backend=hopper))
    assert torch.equal(x, tokens(20, 512))


def test_what_tma_cannot_read_few_tokens_read_otherwise(hopper: Any) -> None:
    given, values = weight(40, 512)
    apart = torch.full((6, 516), math.nan, dtype=BF16)
    apart[:, :512] = tokens(6, 512)
    close(linear(apart[:, :512], pack(given, rows=16), backend=hopper), stored(tokens(6, 512), values))


def test_nan_stays_in_its_token_and_group(hopper: Any) -> None:
    pairs = [weight(20, 272, seed=n) for n in range(2)]
    x = tokens(20, 2 * 272).view(20, 2, 272)
    x[3, 1, 0] = math.nan  # beside the end of the first group's k, which is no whole box
    y = grouped_linear(x, pack([w for w, _ in pairs], rows=16, grouped=True), backend=hopper)
    assert bool(y[3, 1].isnan().all()) and int(y.isnan().sum()) == 20
    close(y[:, 0], stored(x[:, 0], pairs[0][1]))


@pytest.mark.parametrize("hasty", [False, True])
def test_registers_of_products_under_way_are_left_alone(hasty: bool) -> None:
    # On a GPU the mutant gives infinities; the emulator takes operands when it issues a product, so values are right.
    pytest.importorskip("cutlass")
    from emulator.watch.racecheck import Racecheck
    from mutants.linear import MUTANTS

    check = Racecheck()
    backend = backends.get("emulated", arch="sm_90a", listeners=(check,))
    given, values = weight(70, 512)
    settings = {"columns": 16, "along": 1, "split": 1, "units": 1, "stages": 2, "ahead": 2}
    y = linear(
        tokens(12, 512),
        pack(given, rows=16),
        backend=backend,
        kernel=MUTANTS["operands_overwritten"] if hasty else None,
        **settings,
    )
    close(y, stored(tokens(12, 512), values))
    found = {(f.kind, f.memory) for f in check.findings}
    assert found == ({("race", "registers of A of a wgmma")} if hasty else set())


def test_several_weights_keep_their_own_scale(hopper: Any) -> None:
    pairs = [weight(n, 256, seed=n) for n in (70, 16, 33)]
    outputs = multi_linear(tokens(20, 256), pack([w for w, _ in pairs], rows=16), backend=hopper)
    for y, (_, values) in zip(outputs, pairs, strict=True):
        assert y.is_contiguous()
        close(y, stored(tokens(20, 256), values))
