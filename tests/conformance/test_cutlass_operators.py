"""nvidia-cutlass-operators, unmodified, against torch in fp64: one or two kernels of each kind that it offers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from tests.conformance.worker import BLACKWELL, BOTH, Cases, check, installed

CASES = Cases()
pytestmark = installed("nvidia-cutlass-operators", "0.3.0")
# What rounding the output to float16 gives, over many values: 2.1e-4.
F16 = 2.5e-4
Pairs = dict[str, tuple[Any, Any]]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16, device="cuda")


def operator(args: Any, kind: str, parts: tuple[str, ...]) -> Any:
    """The first operator of a class whose name contains every one of `parts`."""
    import cutlass.operators as ops
    from cutlass.cutlass_dsl import CuTeDSL

    arch = CuTeDSL._get_dsl().envar.arch.removeprefix("sm_")
    for found in ops.get_operators(args, target_sm=arch):
        name = found.metadata.operator_name
        if type(found).__name__ == kind and all(part in name for part in parts):
            return partial(found.run, args, compiled_artifact=found.compile(args, target_sm=arch))
    raise AssertionError(f"no {kind} with {parts}")


def gemm(kind: str, *parts: str, m: int = 200, n: int = 264, k: int = 136) -> Pairs:
    import cutlass.operators as ops

    a, b, out = randn(m, k), randn(k, n), torch.zeros(m, n, dtype=torch.float16, device="cuda")
    operator(ops.GemmArguments(a, b, out, accumulator_type=torch.float32), kind, parts)()
    return {"out": (out, a.double() @ b.double())}


DENSE, EFC = "PersistentDenseGemmOperator", "PersistentDenseGemmEFCOperator"
PREFERRED, SM90, SM80 = (
    "PersistentDenseGemmPreferredClusterOperator",
    "Sm90StaticPersistentGemmOperator",
    "Sm80TensorOpGemmOperator",
)
for name, (arches, kind, *parts) in {
    "dense_clc_two_ctas": (BLACKWELL, DENSE, "2cta_cluster2x1x1", "tile128x32x64", "CLC"),
    "dense_static_one_cta": (BLACKWELL, DENSE, "1cta_cluster1x2x1", "tile128x128x64", "STATIC"),
    "efc": (BLACKWELL, EFC, "2cta_cluster2x2x1", "tile256x128x64"),
    "preferred_cluster": (BLACKWELL, PREFERRED, "2cta_preferred2x2x1_fallback2x1x1", "tile128x32x64"),
    "sm90": (("sm_90a",), SM90, "cluster1x1x1_tile64x64x64"),
    "sm90_cluster": (("sm_90a",), SM90, "cluster2x1x1", "tile128x128x64"),
    "sm80": (BOTH, SM80, "tile128x128x32"),
}.items():
    CASES.add(F16, arches, name=name)(partial(gemm, kind, *parts))


@CASES.add({"out": 3.2e-4, "steps": 1e-5}, BLACKWELL)
def relu_of_a_sum() -> Pairs:
    """D = relu(A B + C), fused. The package rounds A B to float16 before it adds."""
    import cutlass.operators as ops

    def epilogue(accum, C):
        D = relu(accum + C)  # noqa: F821  parsed, never executed
        return D

    a, b, c, out = randn(256, 128), randn(128, 256), randn(256, 256) * 8, torch.zeros(256, 256).half().cuda()
    fused = ops.EpilogueArguments(epilogue, C=c, D=out)
    operator(
        ops.GemmArguments(a, b, out, accumulator_type=torch.float32, epilogue=fused), EFC, ("1cta_cluster1x1x1",)
    )()
    exact = a.double() @ b.double()
    return {"out": (out, (exact + c.double()).relu()), "steps": (out, (exact.half() + c).relu())}


@pytest.mark.parametrize("name, arch", CASES.pairs())
def test_cutlass_operators(worker, name, arch):
    check(CASES, name, worker(__name__, arch).run(name))
