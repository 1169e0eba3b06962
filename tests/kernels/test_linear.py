"""Small-M linears: the packed layout and its inverse, what is refused, what is empty, what the emulated kernels
compute."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from kernels.linear import Packed, Weight, config_for, grouped_linear, linear, multi_linear, pack, rows_for, unpack
from kernels.linear.config import LinearConfig
from kernels.linear.layout import E4M3_MASK, F16_MASK, PLAN_F16, e2m1_words, e2m1_words_e4m3
from kernels.linear.sm90_host import NARROW
from kernels.linear.wide_config import WideConfig
from oracles.formats import e2m1, fp8, mxfp4, nvfp4, swizzle

BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def hopper() -> Any:
    """The emulated sm_90a, with the tensor core's own arithmetic."""
    if find_spec("cutlass") is None:
        pytest.skip("kernels need nvidia-cutlass-dsl")
    import backends

    return backends.get("emulated", arch="sm_90a", arithmetic="exact")


def weight(n: int, k: int, form: str = "nvfp4", seed: int = 3) -> tuple[Weight, torch.Tensor]:
    """A weight and its values."""
    w = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 0.02
    if form == "fp8":
        codes, scales = fp8.quantize_128x128(w)
        return Weight(codes, scales), fp8.dequantize_128x128(codes, scales)
    if form == "mxfp4":
        codes, scales = mxfp4.quantize(w)
        return Weight(codes, scales), mxfp4.dequantize(codes, scales)
    scale = nvfp4.global_scale(w)
    codes, scales = nvfp4.quantize(w, scale)
    return Weight(codes, scales, scale), nvfp4.dequantize(codes, scales, scale)


def tokens(m: int, k: int, seed: int = 4) -> torch.Tensor:
    x = torch.randn(m, k, generator=torch.Generator().manual_seed(seed)) + 0.3
    return (x * torch.where(torch.arange(k) % 61 == 0, 20.0, 1.0)).to(BF16)


# ---------------------------------------------------------------------------- layout


def f16_values(word: int) -> list[float]:
    """The f16 pairs that masks and left shifts make of a word, times 2^14, in the order of the A operand."""
    masked = [word, word << 3, (word << 1 & 0x80008000) | (word << 6 & ~0x80008000)]
    masked.append((word << 2 & 0x80008000) | (word << 9 & ~0x80008000))
    halves = [(w & F16_MASK) >> s & 0xFFFF for w in masked for s in (0, 16)]
    return [float(torch.tensor(h, dtype=torch.int32).to(torch.int16).view(torch.float16)) * 2.0**14 for h in halves]


def test_the_bit_plan_for_f16_uses_every_bit_once_and_reads_back() -> None:
    bits = [bit for sign, magnitude in PLAN_F16 for bit in (sign, magnitude, magnitude + 1, magnitude + 2)]
    assert sorted(bits) == list(range(16))
    codes = torch.arange(2 * 8 * 128, dtype=torch.uint8).remainder(16).view(1, 1, 2, 8, 128).flip(-1)
    words = e2m1_words(codes).view(torch.int32).view(2, 8, 4, 4)  # j / 4, g, t, j % 4
    values = e2m1.decode(codes[0, 0])  # h, g, k
    for j, g, t in ((0, 0, 0), (5, 3, 2), (7, 7, 3)):
        k = 16 * j + 2 * t
        want = [values[h, g, k + 8 * pair + parity] for pair in range(2) for h in range(2) for parity in range(2)]
        assert f16_values(int(words[j // 4, g, t, j % 4]) & 0xFFFFFFFF) == [float(v) for v in want]


def test_every_code_times_every_scale_is_an_f16() -> None:
    codes = e2m1.decode(torch.arange(16, dtype=torch.uint8))[:, None] * 2.0**-14
    products = codes * torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    assert torch.equal(products.half().double(), products)


def test_the_bit_plan_for_e4m3_reads_back() -> None:
    codes = torch.randint(0, 16, (1, 1, 2, 8, 128), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    words = e2m1_words_e4m3(codes).view(torch.int32).view(2, 8, 4, 4).to(torch.int64) & 0xFFFFFFFF
    first = words & E4M3_MASK
    rotated = (words << 6 | words >> 26) & 0xFFFFFFFF
    second = (words << 2 & 0x04040404 | rotated & ~0x04040404) & E4M3_MASK
    for h, word in enumerate((first, second)):
        data = torch.stack(
            [(word >> 8 * i & 255).to(torch.uint8) for i in range(4)], dim=-1
        )  # j / 4, g, t, j % 4, byte
        got = data.permute(1, 0, 3, 2, 4).reshape(8, 128).view(torch.float8_e4m3fn).double() * 64
        assert torch.equal(got, e2m1.decode(codes[0, 0, h]))


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4", "fp8"])
@pytest.mark.parametrize("activation", ["f16", "e4m3"])
@pytest.mark.parametrize(("n", "k", "rows"), [(16, 32, 16), (40, 544, 16), (33, 1056, 8), (150, 1024, 4)])
def test_unpack_is_the_exact_inverse(form: str, activation: str, n: int, k: int, rows: int) -> None:
    weights = [weight(n, k, form, seed)[0] for seed in range(2)]
    back = unpack(pack(weights, format=form, activation=activation, rows=rows))
    for given, got in zip(weights, back, strict=True):
        assert torch.equal(got.codes, given.codes)
        scales = given.scales
        if form == "fp8":
            scales = torch.exp2(scales.float() - 127)
        assert torch.equal(got.scales, scales)
        assert float(got.alpha) == (1.0 if given.alpha is None else float(given.alpha))


def test_swizzled_scales_pack_like_linear_ones() -> None:
    given, _ = weight(130, 528)
    swizzled = replace(given, scales=swizzle.swizzle(given.scales))
    assert torch.equal(pack(swizzled).data, pack(given).data)


def test_every_multiprocessor_gets_a_tile() -> None:
    assert [rows_for((n,), 4096) for n in (512, 1024, 4096, 129280)] == [4, 8, 16, 16]
    assert rows_for((1024,) * 8, 4096) == 16 and rows_for((512,), 128) == 16
    assert [rows_for((n,), 4096, "e4m3") for n in (512, 4096, 32768)] == [4, 8, 16]


def test_decode_shapes_fit_the_multiprocessor() -> None:
    for n, k in ((1024, 4096), (512, 4096), (32768, 1024), (4096, 8192), (4096, 4096), (4096, 2048), (129280, 4096)):
        for activation in ("f16", "e4m3"):
            for m in (1, 2, 4, 8, 16):
                config = config_for(shaped(n, k, activation), m, activation)
                assert config.problems() == []
                few = m <= (16 if n == 129280 else NARROW[rows_for((n,), k)])
                assert isinstance(config, WideConfig) == (activation == "f16" and not few)
                assert (config.columns if isinstance(config, WideConfig) else config.tokens) >= m


def shaped(n: int, k: int, activation: str = "f16") -> Packed:
    """A packed weight without data, for questions about its kernel."""
    rows = rows_for((n,), k, activation)
    return Packed(torch.empty(0, dtype=torch.uint8), torch.ones(1), "nvfp4", (n,), k, rows, False, activation)


def test_problems_name_the_value_and_what_is_allowed() -> None:
    base = LinearConfig("nvfp4", "f16", (64,), 512)
    assert base.problems() == []
    assert replace(base, weights="int4").problems() == [
        "weights='int4' is not supported on sm90; supported: nvfp4, mxfp4, fp8"
    ]
    assert replace(base, k=24).problems() == ["k=24; allowed: positive multiples of 16"]
    assert replace(base, in_flight=9).problems() == ["in_flight=9; allowed: 1 to stages=8"]
    assert replace(base, stages=14).problems()[0].startswith("shared memory: ring 258048 + activations 0 + partial")
    assert replace(base, parts=(64, 32), grouped=True).problems() == [
        "parts=(64, 32); allowed in a grouped linear: equal numbers of rows"
    ]


# ---------------------------------------------------------------------------- arguments


class NoLaunch:
    """A backend that can allocate and nothing else."""

    arch = "sm_90a"
    device = torch.device("cpu")

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        return torch.full(shape, math.nan, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"backend.{name} was used")


def refusal(call: Any, *args: Any, **settings: Any) -> str:
    with pytest.raises(ValueError) as raised:
        call(*args, **settings)
    return str(raised.value)


def test_pack_checks_its_tensors() -> None:
    good, _ = weight(40, 64)
    bad = replace(good, scales=good.scales[:, :3].contiguous())
    assert refusal(pack, bad).startswith(
        "pack: weights[0].scales is torch.uint8 (40, 3); allowed: contiguous torch.uint8"
    )
    assert "of shape (40, 4), or the 128 x 4 swizzle, flat, of 512 bytes" in refusal(pack, bad)
    half = replace(good, codes=good.codes[:, :12].contiguous())
    assert refusal(pack, half) == "pack: weights[0] has n=40, k=24; allowed: n at least 1, k a multiple of 16"
    assert "allowed: contiguous torch.uint8 or torch.int8" in refusal(pack, replace(good, codes=good.codes.T))
    assert refusal(pack, good, format="int4") == "pack: format='int4'; allowed: nvfp4, mxfp4, fp8"
    for byte in (0x7F, 0x80, 0xB8):
        scales = good.scales.clone()
        scales[39, 3] = byte
        assert refusal(pack, [good, replace(good, scales=scales)]) == (
            "pack: weights[1].scales has bytes above 0x7e; allowed: E4M3 without sign or NaN"
        )
    other, _ = weight(40, 128)
    assert refusal(pack, [good, other]).startswith("pack: weights have k=[64, 128]; allowed: at least one weight")
    away = replace(good, alpha=torch.ones((), device="meta"))
    assert refusal(pack, away) == "pack: tensors on cpu, meta; allowed: one device"
    assert "alpha is torch.float64" in refusal(pack, replace(good, alpha=torch.ones((), dtype=torch.float64)))


def test_linear_checks_its_arguments() -> None:
    packed, x, backend = pack(weight(40, 64)[0]), tokens(2, 64), NoLaunch()
    assert refusal(linear, x.float(), packed, backend=backend) == (
        "linear: x is torch.float32 (2, 64); allowed: torch.bfloat16 (m, 64)"
    )
    assert refusal(linear, x[:, :48], packed, backend=backend).startswith(
        "linear: x is torch.bfloat16 (2, 48); allowed"
    )
    rounded = pack(weight(40, 64)[0], activation="e4m3")
    assert refusal(linear, tokens(17, 64), rounded, activation="e4m3", backend=backend) == (
        "linear: x has m=17 tokens; allowed: 0 to 16"
    )
    endless = torch.empty(1, dtype=BF16).expand((1 << 20) + 1, 64)
    assert refusal(linear, endless, packed, backend=backend) == "linear: x has m=1048577 tokens; allowed: 0 to 1048576"
    assert "allowed: last stride 1" in refusal(linear, tokens(64, 2).T, packed, backend=backend)
    apart = torch.empty(17, 68, dtype=BF16)[:, :64]
    assert "token stride a multiple of 8, address a multiple of 16" in refusal(linear, apart, packed, backend=backend)
    assert refusal(linear, x.to("meta"), packed, backend=backend) == (
        "linear: x.device=meta; allowed: cpu, where the backend runs"
    )
    assert refusal(linear, x, packed, activation="e4m3", backend=backend) == (
        "linear: activation='e4m3'; allowed: 'f16', for which packed was made"
    )
    assert refusal(linear, x, packed, activation="fp4", backend=backend).startswith(
        "linear: activation='fp4'; allowed: f16"
    )
    cut = replace(packed, data=packed.data[:-1])
    assert refusal(linear, x, cut, backend=backend).startswith("linear: packed.data is torch.uint8 (")
    short = torch.empty(2, 39, dtype=BF16)
    assert refusal(linear, x, packed, out=short, backend=backend).startswith("linear: out is torch.bfloat16 (2, 39)")
    several = pack([weight(40, 64)[0]] * 2)
    assert "allowed: one" in refusal(linear, x, several, backend=backend)
    assert "allowed: True" in refusal(grouped_linear, x, several, backend=backend)
    assert "allowed: False" in refusal(multi_linear, x, pack([weight(40, 64)[0]] * 2, grouped=True), backend=backend)
    other = NoLaunch()
    other.arch = "sm_70"
    assert refusal(linear, x, packed, backend=other).startswith(
        "linear: arch=sm_70 is not supported; supported: sm_90a"
    )


@pytest.mark.parametrize("m", [1, 4, 8, 16])
def test_every_code_under_every_scale(hopper: Any, m: int) -> None:
    """A row a scale; the column of a token's only activation gives each of the codes in turn."""
    n, k = 127, 16
    codes = torch.arange(16).repeat(n, 1)
    given = Weight((codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), torch.arange(n, dtype=torch.uint8)[:, None])
    packed = pack(given, rows=16)
    for first in range(0, k, m):
        x = torch.eye(k)[first : first + m].to(BF16)
        y = linear(x, packed, backend=hopper, spread=2)
        scales = given.scales.view(torch.float8_e4m3fn).double()
        want = scales * e2m1.decode(torch.arange(first, first + m).to(torch.uint8))
        assert torch.equal(y.double(), want.T.to(BF16).double())


def test_no_tokens_give_empty_outputs_and_no_launch() -> None:
    first, second = weight(40, 64)[0], weight(24, 64)[0]
    assert tuple(linear(tokens(0, 64), pack(first), backend=NoLaunch()).shape) == (0, 40)
    outputs = multi_linear(tokens(0, 64), pack([first, second]), backend=NoLaunch())
    assert [tuple(y.shape) for y in outputs] == [(0, 40), (0, 24)]
    grouped = grouped_linear(tokens(0, 128).view(0, 2, 64), pack([first, first], grouped=True), backend=NoLaunch())
    assert tuple(grouped.shape) == (0, 2, 40)


# ---------------------------------------------------------------------------- the kernels


def stored(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The exact product as BF16."""
    return (x.double() @ values.T).to(BF16)


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "settings"),
    [
        (1, 50, 2048, 16, {"spread": 2, "stages": 2, "in_flight": 1}),
        (2, 20, 1040, 8, {"spread": 1}),
        (5, 9, 512, 4, {"spread": 2}),
        (8, 20, 512, 16, {"spread": 1}),
    ],
)
def test_products_are_exact(hopper: Any, m: int, n: int, k: int, rows: int, settings: dict[str, int]) -> None:
    given, values = weight(n, k)
    y = linear(tokens(m, k), pack(given, rows=rows), backend=hopper, **settings)
    off = (y.double() - stored(tokens(m, k), values).double()).abs()
    assert float((off / y.double().abs().clamp_min(1e-3)).max()) <= 2.0**-7  # one unit in the last place, at a tie
    assert int((off > 0).sum()) <= max(1, y.numel() // 100)


def test_outputs_land_in_the_given_tensor_and_repeat(hopper: Any) -> None:
    given, values = weight(40, 512)
    packed, x, out = pack(given, rows=16), tokens(2, 512), torch.full((2, 40), math.nan, dtype=BF16)
    assert linear(x, packed, out=out, backend=hopper, spread=2) is out
    assert torch.equal(out, linear(x, packed, backend=hopper, spread=2))
    strided = torch.full((2, 520), math.nan, dtype=BF16)
    strided[:, :512] = x
    assert torch.equal(out, linear(strided[:, :512], packed, backend=hopper, spread=2))
    assert torch.equal(x, tokens(2, 512))


def test_nan_stays_visible_in_its_token_alone(hopper: Any) -> None:
    given, values = weight(40, 512)
    x = tokens(2, 512)
    x[1, 300] = math.nan
    y = linear(x, pack(given, rows=16), backend=hopper, spread=2)
    assert torch.equal(y[0], linear(tokens(2, 512), pack(given, rows=16), backend=hopper, spread=2)[0])
    assert bool(y[1].isnan().all())


def test_rounded_activations(hopper: Any) -> None:
    given, values = weight(70, 512)
    x = tokens(3, 512)
    y = linear(x, pack(given, rows=8, activation="e4m3"), activation="e4m3", backend=hopper, spread=1)
    rounded = fp8.rounded_1x128(x.float(), block=512, scale="ue8m0", floor=1e-30)
    want, ideal = rounded.double() @ values.T, x.double() @ values.T
    assert float((y.double() - want.to(BF16).double()).norm() / want.norm()) < 2e-3
    assert 1e-3 < float((y.double() - ideal).norm() / ideal.norm()) < 5e-2


def test_several_weights_keep_their_own_scale(hopper: Any) -> None:
    pairs = [weight(n, 512, seed=n) for n in (40, 16, 33)]
    outputs = multi_linear(tokens(2, 512), pack([w for w, _ in pairs], rows=16), backend=hopper, spread=2)
    for y, (_, values) in zip(outputs, pairs, strict=True):
        assert y.is_contiguous()
        assert float((y.double() - stored(tokens(2, 512), values).double()).abs().max()) <= 2.0**-7 * float(
            y.abs().max()
        )


def test_groups_read_their_own_activations(hopper: Any) -> None:
    pairs = [weight(20, 512, seed=n) for n in range(3)]
    x = tokens(2, 3 * 512).view(2, 3, 512)
    y = grouped_linear(x, pack([w for w, _ in pairs], rows=16, grouped=True), backend=hopper, spread=2)
    for group, (_, values) in enumerate(pairs):
        want = stored(x[:, group], values)
        assert float((y[:, group].double() - want.double()).abs().max()) <= 2.0**-7 * float(want.abs().max())
