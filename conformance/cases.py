"""Which scripts run, for which architecture and with which arguments.

Arguments make problems small (a script's default is sized for a GPU) but never trivial: several tiles, and more steps
of k than pipeline stages where the script allows. One script may have several cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

EXAMPLES = Path("examples/python/CuTeDSL")
PRIMITIVES = "experimental/primitives"


@dataclass(frozen=True)
class Case:
    """One run of one script. `path` is relative to the folder of examples. expected: the verdict that is right,
    which is `pass` unless the script itself is at fault; `note` then says why. seconds: limit of the whole process.
    torch: the version that torch claims to have, so that a script computes a reference by itself which newer versions
    of torch compute on GPUs only."""

    name: str
    path: str
    arguments: str = ""
    arch: str = "sm_100a"
    note: str = ""
    expected: str = "pass"
    seconds: int = 600
    torch: str = ""

    @property
    def primitive(self) -> bool:
        """One of the small scripts that each show one instruction or pattern."""
        return self.path.startswith(PRIMITIVES)


_GEMM = "cute/blackwell/tutorial/tutorial_gemm"
_TMA = "cute/blackwell/tutorial/tutorial_tma"
_BLACKWELL = "cute/blackwell/kernel"
_DENSE = f"{_BLACKWELL}/dense_gemm"
_SCALED = f"{_BLACKWELL}/blockscaled_gemm"
_ATTENTION = f"{_BLACKWELL}/attention"
_EFC = "cute/blackwell/efc"
_HOPPER = "cute/hopper/kernel"
_AMPERE = "cute/ampere"
_EXT = "cute_ext"

_F16 = "--ab_dtype Float16 --c_dtype Float16"
_FP8 = "--a_dtype Float8E4M3FN --b_dtype Float8E4M3FN --sf_dtype Float8E8M0FNU --sf_vec_size 32"

SCRIPTS = (
    Case("fp16_gemm_0", f"{_GEMM}/fp16_gemm_0.py", "--mnk 512,512,256"),
    Case("fp16_gemm_1", f"{_GEMM}/fp16_gemm_1.py", "--mnk 512,512,256"),
    Case("fp16_gemm_2", f"{_GEMM}/fp16_gemm_2.py", "--mnk 512,512,256"),
    Case("fp16_gemm_3", f"{_GEMM}/fp16_gemm_3.py", "--mnk 512,512,256", note="its inputs are all ones"),
    Case("fp16_gemm_3_1", f"{_GEMM}/fp16_gemm_3_1.py", "--mnk 512,512,256"),
    Case("fp16_gemm_4", f"{_GEMM}/fp16_gemm_4.py", "--mnk 512,512,256"),
    Case("fp16_gemm_5", f"{_GEMM}/fp16_gemm_5.py", "--mnk 512,512,256"),
    Case("fp16_gemm_6", f"{_GEMM}/fp16_gemm_6.py", "--mnk 512,512,256"),
    Case("nvfp4_gemm_0", f"{_GEMM}/nvfp4_gemm_0.py", "--mnkl 512,512,256,1"),
    Case("nvfp4_gemm_1", f"{_GEMM}/nvfp4_gemm_1.py", "--mnkl 512,512,256,1"),
    Case("tma_v0", f"{_TMA}/tma_v0.py"),
    Case("tma_v1", f"{_TMA}/tma_v1.py"),
    Case("tma_v2", f"{_TMA}/tma_v2.py"),
    Case("dense_gemm_tf32", f"{_DENSE}/dense_gemm.py", "--mnkl 256,256,256,2"),
    Case("dense_gemm_f16", f"{_DENSE}/dense_gemm.py", f"--mnkl 256,256,128,1 {_F16} --use_tma_store"),
    Case(
        "dense_gemm_fp8_mn_major",
        f"{_DENSE}/dense_gemm.py",
        "--mnkl 256,256,256,1 --ab_dtype Float8E4M3FN --c_dtype Float32 --a_major m --b_major n",
    ),
    Case(
        "dense_gemm_s8",
        f"{_DENSE}/dense_gemm.py",
        "--mnkl 256,256,256,1 --ab_dtype Int8 --c_dtype Int32 --acc_dtype Int32",
    ),
    Case(
        "dense_gemm_m64_ragged",
        f"{_DENSE}/dense_gemm.py",
        f"--mnkl 200,264,136,1 {_F16} --mma_tiler_mn 64,128 --use_tma_store",
    ),
    Case(
        "dense_gemm_2cta",
        f"{_DENSE}/dense_gemm.py",
        f"--mnkl 512,256,256,1 {_F16} --use_2cta_instrs --mma_tiler_mn 256,128 --cluster_shape_mn 2,1 --use_tma_store",
    ),
    Case("dense_gemm_persistent", f"{_DENSE}/dense_gemm_persistent.py", f"--mnkl 512,512,256,1 {_F16} --use_tma_store"),
    Case(
        "dense_gemm_persistent_2cta",
        f"{_DENSE}/dense_gemm_persistent.py",
        f"--mnkl 512,512,256,1 {_F16} --use_tma_store --use_2cta_instrs --mma_tiler_mn 256,128 --cluster_shape_mn 2,2",
    ),
    Case(
        "dense_gemm_persistent_dynamic",
        f"{_DENSE}/dense_gemm_persistent_dynamic.py",
        f"--mnkl 512,512,256,1 {_F16} --use_tma_store",
    ),
    Case(
        "dense_gemm_persistent_prefetch", f"{_DENSE}/dense_gemm_persistent_prefetch.py", f"--mnkl 256,256,256,1 {_F16}"
    ),
    Case("dense_gemm_software_pipeline", f"{_DENSE}/dense_gemm_software_pipeline.py", f"--mnkl 256,256,256,1 {_F16}"),
    Case(
        "dense_gemm_alpha_beta",
        f"{_DENSE}/dense_gemm_alpha_beta_persistent.py",
        "--mnkl 256,256,256,1 --alpha 2.0 --beta 0.5",
    ),
    Case("blockscaled_nvfp4", f"{_SCALED}/dense_blockscaled_gemm_persistent.py", "--mnkl 256,256,256,1"),
    Case(
        "blockscaled_mxfp4",
        f"{_SCALED}/dense_blockscaled_gemm_persistent.py",
        "--mnkl 256,256,256,1 --sf_dtype Float8E8M0FNU --sf_vec_size 32",
    ),
    Case("blockscaled_mxfp8", f"{_SCALED}/dense_blockscaled_gemm_persistent.py", f"--mnkl 256,256,256,1 {_FP8}"),
    Case(
        "blockscaled_mxfp8_2cta",
        f"{_SCALED}/dense_blockscaled_gemm_persistent.py",
        f"--mnkl 256,256,256,1 {_FP8} --a_major m --b_major n --mma_tiler_mn 256,128 --cluster_shape_mn 2,1",
    ),
    Case("blockscaled_amax", f"{_SCALED}/dense_blockscaled_gemm_persistent_amax.py", "--mnkl 256,256,256,1"),
    Case("blockscaled_prefetch", f"{_SCALED}/dense_blockscaled_gemm_persistent_prefetch.py", "--mnkl 256,256,256,1"),
    Case("blockwise_gemm", f"{_BLACKWELL}/blockwise_gemm/blockwise_gemm.py", "--mnkl 256,256,256,1"),
    Case("contiguous_grouped_gemm", f"{_BLACKWELL}/blockwise_gemm/contiguous_grouped_gemm.py", "--mnkl 256,256,256,2"),
    Case(
        "masked_grouped_gemm",
        f"{_BLACKWELL}/blockwise_gemm/masked_grouped_gemm.py",
        "--mnkl 256,256,256,2",
        expected="MemoryFault",
        note="reads gidx_mapping[l], one past its end, for the tile after the last one (line 1021)",
    ),
    Case("grouped_gemm", f"{_BLACKWELL}/grouped_gemm/grouped_gemm.py"),
    Case("grouped_blockscaled_gemm", f"{_BLACKWELL}/blockscaled_grouped_gemm/grouped_blockscaled_gemm.py"),
    Case("mixed_input_gemm", f"{_BLACKWELL}/mixed_input_gemm/mixed_input_gemm.py"),
    Case("grouped_mixed_input_gemm", f"{_BLACKWELL}/mixed_input_gemm/grouped_mixed_input_gemm.py"),
    Case("grouped_mixed_input_acc_scale", f"{_BLACKWELL}/mixed_input_gemm/grouped_mixed_input_gemm_acc_scale.py"),
    Case(
        "moe_grouped_mm",
        f"{_BLACKWELL}/moe/torch_grouped_mm.py",
        "--tokens 64 --experts 4 --top_k_select 2 --hidden 256 --intermediate 256",
    ),
    Case(
        "moe_scaled_grouped_mm",
        f"{_BLACKWELL}/moe/torch_scaled_grouped_mm.py",
        "--tokens 64 --hidden 256 --intermediate 256",
        torch="2.9.0",
    ),
    Case("rmsnorm", f"{_BLACKWELL}/rmsnorm/rmsnorm.py", "--M 64 --N 1024"),
    Case("fmha_f16", f"{_ATTENTION}/fmha/fmha.py", "--q_shape 1,256,1,128 --k_shape 1,512,1,128"),
    Case(
        "fmha_causal_gqa",
        f"{_ATTENTION}/fmha/fmha.py",
        "--q_shape 1,256,4,128 --k_shape 1,256,2,128 --is_causal --is_persistent --lse_calculation",
    ),
    Case(
        "fmha_window_sink",
        f"{_ATTENTION}/fmha/fmha.py",
        "--q_shape 1,256,2,64 --k_shape 1,384,1,64 --window_size 100,0 --bottom_right_align --enable_sink",
    ),
    Case(
        "fmha_fp8",
        f"{_ATTENTION}/fmha/fmha.py",
        "--in_dtype Float8E4M3FN --out_dtype Float8E4M3FN --q_shape 1,256,1,128 --k_shape 1,256,1,128",
        note="the output is fp8",
    ),
    Case("fmha_bwd", f"{_ATTENTION}/fmha/fmha_bwd.py", "--s_q 128 --s_k 256 --h_q 1 --h_k 1"),
    Case("mla_decode_fp16", f"{_ATTENTION}/mla/mla_decode_fp16.py", "--seq_len_k 256"),
    Case("mla_decode_fp8", f"{_ATTENTION}/mla/mla_decode_fp8.py", "--seq_len_k 256", note="the output is fp8"),
    Case(
        "mixed_input_fmha_prefill_d256",
        f"{_ATTENTION}/mixed_input_fmha/mixed_input_fmha_prefill_d256.py",
        "--q_shape 1,1,256,256 --k_shape 1,1,256,256",
        expected="IllegalInstruction",
        note="the first correction warp frees tensor memory while the other three may still read it",
    ),
    Case(
        "mixed_input_fmha_prefill_d512",
        f"{_ATTENTION}/mixed_input_fmha/mixed_input_fmha_prefill_d512.py",
        "--q_shape 1,1,256,512 --k_shape 1,1,256,512",
        expected="IllegalInstruction",
        note="the first correction warp frees tensor memory while the other three may still read it",
    ),
    Case(
        "mixed_input_fmha_decode",
        f"{_ATTENTION}/mixed_input_fmha/mixed_input_fmha_decode.py",
        "--heads_q 8 --heads_k 1 --seqlen 512",
    ),
    Case("mamba2_ssd", f"{_ATTENTION}/mamba2_ssd/mamba2_ssd.py", "--gbehcdln 1,1,2,2,2,64,128,128"),
    Case("efc_custom_epilogue", f"{_EFC}/custom_epilogue_dense_gemm.py", "--mnkl 256,256,128,1"),
    Case("efc_activation", f"{_EFC}/activation_custom_epilogue_dense_gemm.py", "--mnkl 256,256,128,1"),
    Case("efc_synthetic", f"{_EFC}/synthetic_custom_epilogue_dense_gemm.py", "--mnkl 256,256,128,1"),
    Case("ext_dense_gemm", f"{_EXT}/blackwell/dense_gemm.py", "--mnkl 256,256,128,1"),
    Case("ext_dense_gemm_2sm", f"{_EXT}/blackwell/dense_gemm_2sm.py"),
    Case("ext_dense_gemm_ptr_array", f"{_EXT}/blackwell/dense_gemm_ptr_array.py", "--mnkl 256,256,128,2"),
    Case("ext_dense_gemm_pipeline", f"{_EXT}/blackwell/dense_gemm_cute_pipeline.py", f"--mnkl 256,256,128,1 {_F16}"),
    Case("ext_block_scaled_gemm", f"{_EXT}/blackwell/dense_block_scaled_gemm.py", "--mnkl 256,256,256,1"),
    Case("ext_memcpy", f"{_EXT}/ampere/memcpy_simt_universal_copy.py", "--mnl 136 7 9"),
    Case("ampere_elementwise_add", f"{_AMPERE}/kernel/elementwise/elementwise_add.py", "--M 64 --N 256"),
    Case("ampere_elementwise_apply", f"{_AMPERE}/kernel/elementwise/elementwise_apply.py", "--M 64 --N 256"),
    Case("ampere_sgemm", f"{_AMPERE}/kernel/dense_gemm/sgemm.py", "--mnk 128,128,32"),
    Case("ampere_tensorop_gemm", f"{_AMPERE}/kernel/dense_gemm/tensorop_gemm.py", "--mnkl 256,128,128,1"),
    Case(
        "ampere_flash_attention_v2",
        f"{_AMPERE}/kernel/attention/flash_attention_v2.py",
        "--batch_size 1 --seqlen_q 128 --seqlen_k 192 --num_head 1",
    ),
    Case(
        "ampere_hstu_attention",
        f"{_AMPERE}/kernel/attention/hstu_attention.py",
        "--batch_size 1 --seqlen_q 128 --seqlen_kv 128 --num_head 1",
    ),
    Case("hopper_dense_gemm", f"{_HOPPER}/dense_gemm/dense_gemm.py", "--mnkl 256,256,256,1", "sm_90a"),
    Case(
        "hopper_dense_gemm_persistent",
        f"{_HOPPER}/dense_gemm/dense_gemm_persistent.py",
        "--mnkl 256,256,256,1 --cluster_shape_mn 2,1",
        "sm_90a",
    ),
    Case(
        "hopper_dense_gemm_fp8_2xacc", f"{_HOPPER}/dense_gemm/dense_gemm_fp8_2xacc.py", "--mnkl 256,256,256,1", "sm_90a"
    ),
    Case(
        "hopper_dense_gemm_fp8_gelu",
        f"{_HOPPER}/dense_gemm/dense_gemm_fp8_gelu_persistent.py",
        "--mnkl 256,256,256,1",
        "sm_90a",
    ),
    Case(
        "hopper_fmha",
        f"{_HOPPER}/attention/fmha.py",
        "--q_shape 1,128,1,128 --k_shape 1,256,1,128 --is_causal",
        "sm_90a",
    ),
    Case(
        "hopper_grouped_gemm",
        f"{_HOPPER}/grouped_gemm/grouped_gemm.py",
        "--num_groups 2 --problem_sizes_mnkl ((256,256,128,1),(128,384,192,1))",
        "sm_90a",
    ),
    Case("hopper_cta_norm", f"{_HOPPER}/cta_norm/cta_norm.py", "--M 64 --N 1024", "sm_90a"),
)

_SPECIAL = {
    "tma/tma_pipeline_single_warp.py": Case(
        "",
        "",
        expected="fail",
        note="a race of the script: a stage is refilled while other warps may still read it",
    ),
    "tutorial/06_softmax.py": Case(
        "",
        "",
        expected="fail",
        note="a race of kernel 4 of 8: warp 0 overwrites the maximum while other warps may still read it (line 350)",
    ),
    "tutorial/02_naive_gemm.py": Case("", "", seconds=1200),
    "tutorial/03_gemm_tiled_smem.py": Case("", "", seconds=1200),
}


def primitives(cutlass: Path) -> list[Case]:
    """A case for every script of the folder of primitives, which take no arguments."""
    folder = cutlass / EXAMPLES / PRIMITIVES
    found = []
    for script in sorted(folder.rglob("*.py")):
        known = _SPECIAL.get(str(script.relative_to(folder)), Case("", ""))
        found.append(replace(known, name=script.stem, path=str(script.relative_to(cutlass / EXAMPLES))))
    return found


def cases(cutlass: Path, names: tuple[str, ...] = ()) -> list[Case]:
    """All cases, or those named. Raises ValueError for a folder that holds no examples, and for unknown names."""
    if not (cutlass / EXAMPLES).is_dir():
        raise ValueError(f"--cutlass {cutlass}: there is no {EXAMPLES} in it; it must be a checkout of NVIDIA/cutlass")
    known = [*SCRIPTS, *primitives(cutlass)]
    unknown = sorted(set(names) - {case.name for case in known})
    if unknown:
        raise ValueError(f"no case is named {', '.join(unknown)}; known: {', '.join(case.name for case in known)}")
    return [case for case in known if not names or case.name in names]
