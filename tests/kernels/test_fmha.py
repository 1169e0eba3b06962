"""Attention: what is refused, what is empty, and what the emulated kernel computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import oracles.fmha
from kernels.fmha import FmhaOutput, fmha
from kernels.fmha.config import DTYPES, HEAD_DIMS, SOFTMAX, FmhaConfig
from kernels.fmha.tmem import Columns, Tmem

F16, BF16 = torch.float16, torch.bfloat16


# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("softmax", SOFTMAX)
def test_supported_configurations_have_no_problems(dtype: str, head_dim: int, softmax: str) -> None:
    assert FmhaConfig(dtype, head_dim, softmax).problems("sm100") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 96}, "head_dim=96 is not supported on sm100; supported: 64, 128"),
        ({"dtype": "f8"}, "dtype='f8' is not supported on sm100; supported: f16, bf16"),
        ({"softmax": "exp"}, "softmax='exp' is not supported on sm100; supported: none, identity, online"),
        ({"kv_stages": 1}, "kv_stages=1: at least 2, or loads and products take turns"),
        (
            {"head_dim": 128, "kv_stages": 3},
            "online f16 head_dim=128 with kv_stages=3 needs 264,392 bytes of shared memory, 232,448 available",
        ),
    ],
)
def test_each_problem_names_value_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    assert replace(FmhaConfig("f16", 64), **change).problems("sm100") == [message]


def test_several_problems_come_at_once() -> None:
    assert len(FmhaConfig("f8", 96, "exp", 0).problems("sm90")) == 5


def test_tensor_memory_map() -> None:
    tmem = Tmem(128, 64)
    assert (tmem.S, tmem.P, tmem.O) == (Columns(0, 128, 2, 128), Columns(0, 64, 2, 128), Columns(256, 64))
    assert (tmem.S.end, tmem.P.end, tmem.O.end, tmem.allocated) == (256, 192, 320, 512)
    assert Tmem(128, 128).allocated == 512
    assert Tmem(128, 512).problems() == [
        "tensor memory: S 2 x 128 + O 512 = 768 columns, allocated as 1024 (a power of two); an SM has 512"
    ]


def test_budget_is_printed_arithmetic() -> None:
    lines = FmhaConfig("bf16", 64).budget("sm100")
    assert lines[0] == (
        "shared memory: q 16384 + k 32768 + v 32768 + o 16384 + row factors 2048 + barriers 160 + tmem address 8 "
        "= 100520 bytes, 232448 available"
    )
    assert lines[1] == "tensor memory: S 2 x 128 (P in its place) + O 64 = 320 columns, allocated as 512 of 512"
    assert lines[2] == (
        "registers: launched with 65536 / (12 warps x 32) = 168 a thread, 53760 in all; "
        "softmax 128 x 208 + correction 128 x 104 + mma, load 64 x 168 = 50688"
    )
    assert len(lines) == 3 + 6


# ---------------------------------------------------------------------------- arguments


class NoLaunch:
    """A backend that can allocate and nothing else."""

    arch = "sm_100a"
    device = torch.device("cpu")

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        return torch.full(shape, math.nan, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"backend.{name} was used")


def qkv(
    b: int = 1, s_q: int = 4, s_kv: int = 6, h: int = 2, h_kv: int = 1, d: int = 64, dtype: torch.dtype = F16
) -> Any:
    rng = torch.Generator().manual_seed(7)
    shapes = ((b, s_q, h, d), (b, s_kv, h_kv, d), (b, s_kv, h_kv, d))
    return tuple((torch.randn(shape, generator=rng) + 0.3).to(dtype) for shape in shapes)


def refusal(*args: Any, **settings: Any) -> str:
    tensors = [x for x in args if isinstance(x, torch.Tensor) and x.device.type == "cpu"]
    before = [x.clone() for x in tensors]
    with pytest.raises(ValueError) as raised:
        fmha(*args, **({"backend": NoLaunch()} | settings))
    assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))
    return str(raised.value)


def test_shapes_are_checked() -> None:
    q, k, v = qkv()
    assert refusal(q[0], k, v) == "fmha: q.shape=(4, 2, 64); allowed: 4 dimensions (b, s, heads, d)"
    assert refusal(q, k, v[:, :5]) == (
        "fmha: v.shape=(1, 5, 1, 64); allowed: (b, s_kv, h_kv, d) = (1, 6, 1, 64) with q and k"
    )
    assert refusal(q, k.expand(2, 6, 1, 64), v).startswith("fmha: k.shape=(2, 6, 1, 64); allowed: (b, s_kv, h_kv, d)")
    q3, k2, v2 = qkv(h=3, h_kv=2)
    assert refusal(q3, k2, v2) == "fmha: q has h=3 heads, k has h_kv=2; allowed: h a positive multiple of h_kv"
    q0, k0, v0 = qkv(h=1, h_kv=0)
    assert refusal(q0, k0, v0) == "fmha: q has h=1 heads, k has h_kv=0; allowed: h a positive multiple of h_kv"
    q96, k96, v96 = qkv(d=96)
    assert refusal(q96, k96, v96) == "fmha: q has head_dim=96, not supported on sm100; supported: 64, 128"


def test_types_and_devices_are_checked() -> None:
    q, k, v = qkv()
    assert refusal(q.float(), k, v) == (
        "fmha: q.dtype=torch.float32 is not supported on sm100; supported: float16, bfloat16"
    )
    assert refusal(q, k.bfloat16(), v) == (
        "fmha: k.dtype=torch.bfloat16 is not supported on sm100; supported: the dtype of q, torch.float16"
    )
    assert refusal(q, k, None) == "fmha: v is a NoneType; allowed: a torch.Tensor"
    assert refusal(q, k.to("meta"), v) == "fmha: k.device=meta; allowed: cpu, where the backend runs"


def test_strides_and_addresses_are_checked() -> None:
    q, k, v = qkv()
    assert refusal(q.transpose(2, 3).contiguous().transpose(2, 3), k, v) == "fmha: q.stride(3)=2; allowed: 1"
    odd = torch.zeros(1, 6, 1, 68, dtype=F16)[..., :64]
    assert refusal(q, odd, v) == (
        "fmha: k.stride(1)=68 elements of 2 bytes; allowed: multiples of 16 bytes below 2^40 (TMA)"
    )
    shifted = torch.zeros(6 * 64 + 8, dtype=F16)[1 : 6 * 64 + 1].view(1, 6, 1, 64)
    past = shifted.data_ptr() % 16
    assert refusal(q, k, shifted) == (
        f"fmha: v.data_ptr() is {past} past a multiple of 16 bytes; allowed: multiples (TMA)"
    )


def test_options_are_checked() -> None:
    q, k, v = qkv()
    assert refusal(q, k, v, softmax="exp").startswith("fmha: softmax='exp' is not supported on sm100; supported: none,")
    assert refusal(q, k, v, causal=1) == "fmha: causal=1; allowed: True, False"
    for scale in (0.0, -1.0, math.inf, math.nan, "1"):
        assert refusal(q, k, v, scale=scale).startswith(f"fmha: scale={scale!r}; allowed: a finite number above 0")
    assert "needs 264,392 bytes of shared memory" in refusal(*qkv(d=128), kv_stages=3)
    other = NoLaunch()
    other.arch = "sm_90a"
    assert refusal(q, k, v, backend=other) == "fmha: arch=sm_90a is not supported; supported: sm_100a"


@pytest.mark.parametrize(("b", "s_q"), [(0, 4), (1, 0)])
def test_empty_queries_give_empty_outputs_and_no_launch(b: int, s_q: int) -> None:
    result = fmha(*qkv(b=b, s_q=s_q), backend=NoLaunch())
    assert (tuple(result.out.shape), tuple(result.lse.shape), result.s) == ((b, s_q, 2, 64), (b, 2, s_q), None)


def test_no_keys_give_zeros_and_minus_infinity_and_no_launch() -> None:
    q, k, v = qkv(s_kv=0)
    result = fmha(q, k, v, backend=NoLaunch())
    assert torch.equal(result.out, torch.zeros_like(q))
    assert torch.equal(result.lse, torch.full((1, 2, 4), -math.inf))
    identity = fmha(q, k, v, softmax="identity", backend=NoLaunch())
    assert torch.equal(identity.out, torch.zeros_like(q)) and identity.lse is None
    assert tuple(fmha(q, k, None, softmax="none", backend=NoLaunch()).s.shape) == (1, 2, 4, 0)


# ---------------------------------------------------------------------------- the kernel


def diff(got: torch.Tensor, want: torch.Tensor) -> float:
    """1 - 2xy/(x^2+y^2) over what is finite; the rest must be the same."""
    x, y = got.double(), want.double()
    finite = torch.isfinite(y)
    assert torch.equal(x[~finite], y[~finite])
    x, y = x[finite], y[finite]
    return float(((x - y) ** 2).sum() / ((x * x).sum() + (y * y).sum()).clamp_min(1e-300))


def check(result: FmhaOutput, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **settings: Any) -> None:
    """Within rounding of the fp64 oracle: P and out are rounded once each, at 2^-11 (f16) or 2^-8 (bf16)."""
    scale = settings.pop("scale", None) or 1 / math.sqrt(q.shape[3])
    out, lse = oracles.fmha.attention(q, k, v, scale=scale, **settings)
    assert result.out.dtype == q.dtype and result.lse.dtype == torch.float32
    assert diff(result.out, out) < (1e-7 if q.dtype == F16 else 4e-6)
    finite = torch.isfinite(lse)
    assert torch.equal(result.lse[~finite].double(), lse[~finite])
    assert float((result.lse[finite] - lse[finite]).abs().max() if finite.any() else 0.0) < 5e-6


@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ({"s_q": 128, "s_kv": 128}, False),
        ({"s_q": 1, "s_kv": 1}, False),
        ({"s_q": 129, "s_kv": 385, "h": 1}, False),
        ({"s_q": 127, "s_kv": 255}, True),
        ({"s_q": 140, "s_kv": 3}, True),
        ({"s_q": 3, "s_kv": 140}, True),
        ({"b": 2, "s_q": 5, "s_kv": 130, "h": 6, "h_kv": 3}, False),
    ],
)
def test_attention_f16(backend: Any, shape: dict[str, int], causal: bool) -> None:
    q, k, v = qkv(**shape)
    check(fmha(q, k, v, causal=causal, backend=backend), q, k, v, causal=causal)


@pytest.mark.parametrize(("dtype", "d"), [(F16, 128), (BF16, 64), (BF16, 128)])
def test_attention_of_other_types(backend: Any, dtype: torch.dtype, d: int) -> None:
    q, k, v = qkv(s_q=70, s_kv=300, d=d, dtype=dtype)
    check(fmha(q, k, v, backend=backend), q, k, v)


def test_the_scale_is_an_argument(backend: Any) -> None:
    q, k, v = qkv(s_q=20, s_kv=200)
    check(fmha(q, k, v, scale=0.7, backend=backend), q, k, v, scale=0.7)


def test_k_and_v_may_be_one_tensor(backend: Any) -> None:
    q, k, _ = qkv(s_q=20, s_kv=200)
    check(fmha(q, k, k, backend=backend), q, k, k)


def padded(x: torch.Tensor) -> torch.Tensor:
    room = torch.full((x.shape[0] + 1, x.shape[1] + 3, x.shape[2] + 1, x.shape[3] + 8), math.nan, dtype=x.dtype)
    room[: x.shape[0], : x.shape[1], : x.shape[2], : x.shape[3]] = x
    return room[: x.shape[0], : x.shape[1], : x.shape[2], : x.shape[3]]


def heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def odd_strides_of_single_modes(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[0] == 1
    return x.as_strided(x.shape, (7, *x.stride()[1:]))


@pytest.mark.parametrize("view", [padded, heads_first, odd_strides_of_single_modes])
def test_strides_are_honoured(backend: Any, view: Any) -> None:
    q, k, v = qkv(s_q=40, s_kv=140, h=2, h_kv=2)
    packed = fmha(q, k, v, backend=backend)
    strided = fmha(view(q), view(k), view(v), backend=backend)
    assert torch.equal(packed.out, strided.out) and torch.equal(packed.lse, strided.lse)


def test_a_broadcast_batch_is_honoured(backend: Any) -> None:
    q, k, v = qkv(b=2, s_q=40, s_kv=140)
    k, v = k[:1].expand(2, 140, 1, 64), v[:1].expand(2, 140, 1, 64)
    check(fmha(q, k, v, backend=backend), q, k, v)


def test_rows_past_the_end_are_not_written(backend: Any) -> None:
    """The output of a ragged tile ends where its tensor does: the next head's rows follow at once."""
    q, k, v = qkv(b=2, s_q=100, s_kv=40)
    whole = fmha(q, k, v, backend=backend)
    parts = [fmha(q[i : i + 1], k[i : i + 1], v[i : i + 1], backend=backend) for i in range(2)]
    assert torch.equal(whole.out, torch.cat([part.out for part in parts]))
    assert torch.equal(whole.lse, torch.cat([part.lse for part in parts]))


def test_a_row_that_sees_nothing_is_zero_even_beside_nan(backend: Any) -> None:
    q, k, v = qkv(s_q=10, s_kv=4)
    v[:, 3] = math.nan
    result = fmha(q, k, v, causal=True, backend=backend)
    assert torch.equal(result.out[:, :6], torch.zeros(1, 6, 2, 64, dtype=F16))
    assert torch.equal(result.lse[..., :6], torch.full((1, 2, 6), -math.inf))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_logits_of_sixty_thousand(backend: Any, sign: float) -> None:
    """All logits of a row about +-6e4: equal ones share the weight, and the LSE is right to its own spacing."""
    q, k = torch.full((1, 8, 1, 64), 75.0, dtype=F16), torch.full((1, 300, 1, 64), 100.0 * sign, dtype=F16)
    v = qkv(s_kv=300)[2]
    result = fmha(q, k, v, backend=backend)
    assert diff(result.out, v.double().mean(dim=1, keepdim=True).expand(1, 8, 1, 64)) < 1e-6
    assert float((result.lse - (60000.0 * sign + math.log(300))).abs().max()) < 8e-3


@pytest.mark.parametrize("causal", [False, True])
def test_scores_alone(backend: Any, causal: bool) -> None:
    q, k, _ = qkv(b=2, s_q=130, s_kv=201, h=2, h_kv=1)
    s = fmha(q, k, None, softmax="none", causal=causal, backend=backend).s
    assert s.dtype == torch.float32
    assert diff(s, oracles.fmha.logits(q, k, 1 / 8, causal)) < 1e-13


@pytest.mark.parametrize("causal", [False, True])
def test_two_products_without_softmax(backend: Any, causal: bool) -> None:
    q, k, v = qkv(s_q=130, s_kv=201)
    result = fmha(q, k, v, softmax="identity", causal=causal, backend=backend)
    assert result.lse is None
    assert diff(result.out, oracles.fmha.identity(q, k, v, scale=1 / 8, causal=causal, kind="simulated")) < 1e-7


def test_one_launch_no_sync_no_second_compile(backend: Any) -> None:
    """One compile serves every shape, stride, scale and mask of a configuration."""
    q, k, v = qkv(s_q=40, s_kv=140)
    others = tuple(padded(x) for x in qkv(b=2, s_q=3, s_kv=7, h=4, h_kv=2))
    fmha(q, k, v, backend=backend)
    with backend.count() as counted:
        fmha(q, k, v, backend=backend)
        fmha(*others, causal=True, scale=0.5, backend=backend)
    assert (counted.launches, counted.syncs, counted.compiles) == (2, 0, 0)


@pytest.mark.parametrize("policy", ["latest", "random"])
def test_completion_order_changes_no_bit(backend: Any, policy: str) -> None:
    q, k, v = qkv(s_q=130, s_kv=650)
    expected = fmha(q, k, v, causal=True, backend=backend)
    backend.policy = policy
    try:
        for seed in (0, 1, 2):
            backend.seed = seed
            result = fmha(q, k, v, causal=True, backend=backend)
            assert torch.equal(result.out, expected.out) and torch.equal(result.lse, expected.lse)
    finally:
        backend.policy, backend.seed = "in_order", 0


def test_inputs_are_unchanged(backend: Any) -> None:
    x = qkv(s_q=40, s_kv=140)
    before = [t.clone() for t in x]
    fmha(*x, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(x, before, strict=True))


def test_three_stages(backend: Any) -> None:
    q, k, v = qkv(s_q=20, s_kv=900)
    check(fmha(q, k, v, kv_stages=3, backend=backend), q, k, v)


@pytest.mark.parametrize("softmax", SOFTMAX)
def test_shapes_are_shown_while_the_kernel_is_traced(backend: Any, softmax: str) -> None:
    """Mode 2 of the value partition counts tiles; mode 1 beside it has stride 0 (the trap of ``value_tiles``)."""
    from cutlass import Float32, Int32, cute

    from backends.dsl import settings
    from kernels.fmha.sm100 import FmhaSm100
    from kernels.shared.show import showing

    config = FmhaConfig("f16", 64, softmax)
    q, k, v = qkv(s_q=40, s_kv=140)
    out = torch.zeros(1, 2, 40, 140) if softmax == "none" else q
    lse = torch.zeros(1, 2, 40) if softmax == "online" else None
    args = [backend.tensor(x, "x", leading_dim=3) for x in (q, k, v, out)]
    args[2] = args[2] if config.has_pv else None
    args.append(None if lse is None else backend.tensor(lse, "lse", leading_dim=2))
    lines: list[str] = []
    with showing(lines.append), settings(backend.arch, None):
        cute.compile(FmhaSm100(config), *args, Float32(1.0), Int32(0), backend.stream())
    shown = {text.split()[0]: text for text in lines}
    assert {"mQ", "tQgQ", "tKgK", "tSrK", "tStS"} <= set(shown)
    assert "(((64,128),1),?)" in shown["tKgK"]
    if config.has_pv:
        assert "(((64,128),1),1,?,?,?):(((1@0,1@1),0),0,128@1,1@2,1@3)" in shown["tVgV_all"]
        assert "(((64,128),1),?):(((1@0,1@1),0),128@1)" in shown["tVgV"]


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("softmax", SOFTMAX)
def test_resources_are_those_of_the_budget(backend: Any, softmax: str, head_dim: int) -> None:
    """The launch asks for the bytes of the budget, and ptxas keeps to the registers of the budget without spilling."""
    q, k, v = qkv(s_q=4, s_kv=6, d=head_dim)
    config = FmhaConfig("f16", head_dim, softmax)
    compiled = []
    compile_ = backend.compile
    backend.compile = lambda *args, **settings: compiled.append(compile_(*args, **settings)) or compiled[-1]
    try:
        fmha(q, k, v, softmax=softmax, backend=backend)
    finally:
        del backend.compile
    assert backend.last_launches[-1].shared_bytes == sum(config.shared_bytes().values())
    (resources,) = compiled[0].resources.values()
    assert resources.registers <= config.warps.registers
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)
