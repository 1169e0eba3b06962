"""quack-kernels, unmodified, against torch: norms, softmax, top-k, cross-entropy, GEMMs with their epilogues."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from conformance.stand_ins import block_scales, block_values
from tests.conformance.worker import BLACKWELL, Cases, check, installed

CASES = Cases()
pytestmark = installed("quack-kernels", "0.6.5")
# What rounding the output alone gives, over many values: 1.7e-3 and 2.1e-4.
BF16, F16, F32 = 2.0e-3, 2.5e-4, 5.0e-7
Pairs = dict[str, tuple[Any, Any]]


def randn(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape) * scale).to(dtype).cuda()


@CASES.add(F32)
def rmsnorm() -> Pairs:
    from quack import rmsnorm

    x, weight = randn(33, 768), randn(768)
    return {"out": (rmsnorm(x, weight, eps=1e-6), F.rms_norm(x.double(), (768,), weight.double(), 1e-6))}


@CASES.add(F32)
def rmsnorm_in_a_cluster() -> Pairs:
    """One row of 66,560 values over four CTAs."""
    from quack import rmsnorm

    x, weight = randn(1, 66560), randn(66560)
    return {"out": (rmsnorm(x, weight, eps=1e-6), F.rms_norm(x.double(), (66560,), weight.double(), 1e-6))}


@CASES.add(F32)
def rmsnorm_backward() -> Pairs:
    from quack import rmsnorm

    x, weight, dy = randn(40, 512).requires_grad_(), randn(512).requires_grad_(), randn(40, 512)
    exact, exact_weight = x.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    rmsnorm(x, weight, eps=1e-6).backward(dy)
    F.rms_norm(exact, (512,), exact_weight, 1e-6).backward(dy.double())
    return {"dx": (x.grad, exact.grad), "dweight": (weight.grad, exact_weight.grad)}


@CASES.add(F32)
def softmax() -> Pairs:
    from quack import softmax

    x, dy = randn(30, 1000, scale=3).requires_grad_(), randn(30, 1000)
    exact = x.detach().double().requires_grad_()
    y, expected = softmax(x), exact.softmax(-1)
    y.backward(dy)
    expected.backward(dy.double())
    return {"y": (y, expected), "dx": (x.grad, exact.grad)}


@CASES.add(F32)
def cross_entropy() -> Pairs:
    from quack import cross_entropy

    x, target = randn(30, 1000, scale=3).requires_grad_(), torch.randint(0, 1000, (30,)).cuda()
    target[3] = -100
    exact = x.detach().double().requires_grad_()
    loss, expected = cross_entropy(x, target, reduction="none"), F.cross_entropy(exact, target, reduction="none")
    weights = randn(30)
    loss.backward(weights)
    expected.backward(weights.double())
    return {"loss": (loss, expected), "dx": (x.grad, exact.grad)}


def topk(k: int) -> Pairs:
    """Distinct values that bfloat16 holds: of float32 values the kernel keeps the upper bits only, by design."""
    from quack.topk import topk_fwd

    x = torch.stack([torch.randperm(256) for _ in range(12)]).bfloat16().cuda() / 32 - 4
    values, indices = topk_fwd(x, k)
    expected, places = x.topk(k, dim=-1)
    shares, _ = topk_fwd(x, k, softmax=True)
    return {
        "values": (values, expected),
        "indices": (indices, places),
        "softmax": (shares, expected.double().softmax(-1)),
    }


for k in (8, 16):
    CASES.add({"values": 0, "indices": 0, "softmax": BF16}, name=f"topk_{k}")(partial(topk, k))


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def gemm(dtype: torch.dtype, m: int, n: int, k: int, b_major: str = "n", **settings: Any) -> Pairs:
    from quack.gemm_interface import gemm

    a = randn(m, k, dtype=dtype)
    b = randn(k, n, dtype=dtype) if b_major == "n" else randn(n, k, dtype=dtype).mT
    return {"out": (gemm(a, b, tuned=False, **settings), product(a, b))}


CASES.add(BF16, name="gemm_nn")(partial(gemm, torch.bfloat16, 256, 256, 256))
CASES.add(BF16, name="gemm_nt")(partial(gemm, torch.bfloat16, 256, 256, 256, "k"))
CASES.add(BF16, name="gemm_ragged")(partial(gemm, torch.bfloat16, 200, 264, 136, "k"))
CASES.add(F16, name="gemm_f16")(partial(gemm, torch.float16, 256, 256, 256, "k"))
CASES.add(BF16, name="gemm_dynamic_scheduler")(
    partial(gemm, torch.bfloat16, 384, 512, 192, "k", dynamic_scheduler=True)
)
CASES.add(BF16, name="gemm_split_k")(partial(gemm, torch.bfloat16, 256, 256, 1024, "k", split_k=4))


@CASES.add(BF16)
def gemm_add() -> Pairs:
    from quack.gemm_interface import gemm_add

    a, b, c = randn(256, 192, dtype=torch.bfloat16), randn(256, 192, dtype=torch.bfloat16).mT, randn(256, 256)
    c = c.bfloat16()
    return {"out": (gemm_add(a, b, c, alpha=0.5, beta=2.0, tuned=False), 0.5 * product(a, b) + 2 * c.double())}


def activated(activation: str) -> Pairs:
    from quack.gemm_interface import gemm_act

    a = randn(256, 192, dtype=torch.bfloat16)
    b = randn(256, 192, dtype=torch.bfloat16, scale=0.1).mT
    before, after = gemm_act(a, b, activation=activation, tuned=False)
    exact = product(a, b)
    if activation == "swiglu":
        expected = F.silu(exact[:, ::2]) * exact[:, 1::2]
    else:
        expected = {"relu": F.relu, "gelu_tanh_approx": partial(F.gelu, approximate="tanh")}[activation](exact)
    return {"before": (before, exact), "after": (after, expected)}


for activation in ("relu", "gelu_tanh_approx", "swiglu"):
    CASES.add(BF16, name=f"gemm_{activation}")(partial(activated, activation))


@CASES.add(BF16)
def gemm_symmetric() -> Pairs:
    from quack.gemm_interface import gemm_symmetric

    a = randn(256, 192, dtype=torch.bfloat16)
    return {"out": (gemm_symmetric(a, a.mT), product(a, a.mT))}


@CASES.add(BF16)
def gemm_varlen_m() -> Pairs:
    """Three groups of rows, of 100, 0 and 156, each with a matrix of its own."""
    from quack.gemm_interface import gemm

    bounds = [0, 100, 100, 256]
    a, b = randn(256, 192, dtype=torch.bfloat16), randn(3, 256, 192, dtype=torch.bfloat16).mT
    out = gemm(a, b, cu_seqlens_m=torch.tensor(bounds, dtype=torch.int32, device="cuda"), tuned=False)
    parts = [product(a[lo:hi], b[i]) for i, (lo, hi) in enumerate(pairwise(bounds))]
    return {"out": (out, torch.cat(parts))}


def gemm_scaled(format: str) -> Pairs:
    """Blocks of 16 values under E4M3 scales (nvfp4), or of 32 under powers of two."""
    from quack.blockscaled.operand import BlockScaledOperand
    from quack.gemm_interface import gemm

    block = 16 if format == "nvfp4" else 32
    a, b = (BlockScaledOperand.quantize(randn(256, 256, dtype=torch.bfloat16), format) for _ in range(2))
    exact = [
        block_values(x.qdata) * block_scales(x.scale, 256, 256 // block).repeat_interleave(block, 1) for x in (a, b)
    ]
    return {"out": (gemm(a, b.mT, tuned=False), product(exact[0], exact[1].mT))}


for format in ("mxfp8", "nvfp4", "mxfp4"):
    CASES.add(BF16, BLACKWELL, name=f"gemm_{format}")(partial(gemm_scaled, format))


@pytest.mark.parametrize("name, arch", CASES.pairs())
def test_quack(worker, name, arch):
    check(CASES, name, worker(__name__, arch).run(name))
