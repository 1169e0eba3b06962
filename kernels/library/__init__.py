"""The kernels as operators of torch: `torch.ops.dsv4.*`, with shapes for tracing, and functions that call them.

An operator takes tensors and plain numbers, gives new tensors that share no memory with its arguments, and names the
arguments that it writes. It runs on the GPU that has its tensors; for tensors on the host ``use`` says which backend,
and so which architecture, is meant. Errors are the ValueErrors of the kernels. There are no gradients.

    from kernels.library import nvfp4_linear, rmsnorm_quantize, use

    y = nvfp4_linear(x, packed)                                            # x on a GPU
    with use(backends.get("emulated", arch="sm_90a")):
        y = nvfp4_linear(x, packed)                                        # x on the host
"""

from __future__ import annotations

from kernels.library.endings import (
    nvfp4_linear_quantize,
    nvfp4_linear_rope,
    nvfp4_linear_swiglu,
    nvfp4_linear_swiglu_bf16,
)
from kernels.library.hyper import mhc_post, mhc_post_pre_rmsnorm_quantize, mhc_pre_rmsnorm_quantize
from kernels.library.linears import grouped_linear, multi_linear, nvfp4_linear
from kernels.library.places import backend_for, use
from kernels.library.quantisers import quantize_fp8, quantize_nvfp4, rmsnorm_quantize, swiglu_quantize
from kernels.library.rotations import qk_norm_rope, rope
from kernels.library.scaled import grouped_linear_w4a4, multi_linear_w4a4, nvfp4_linear_w4a4

__all__ = [
    "backend_for",
    "grouped_linear",
    "grouped_linear_w4a4",
    "mhc_post",
    "mhc_post_pre_rmsnorm_quantize",
    "mhc_pre_rmsnorm_quantize",
    "multi_linear",
    "multi_linear_w4a4",
    "nvfp4_linear",
    "nvfp4_linear_quantize",
    "nvfp4_linear_rope",
    "nvfp4_linear_swiglu",
    "nvfp4_linear_swiglu_bf16",
    "nvfp4_linear_w4a4",
    "qk_norm_rope",
    "quantize_fp8",
    "quantize_nvfp4",
    "rmsnorm_quantize",
    "rope",
    "swiglu_quantize",
    "use",
]
