"""Every row of the pipeline has an oracle that a gate judges, kernel or not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gate.load import load

# Components of DeepSeek-V4, and the gates that hold them.
ROWS = {
    "embedding and streams": "embedding",
    "mHC pre and post": "mhc_pre_rmsnorm_quantize mhc_post",
    "norms and rope": "rmsnorm_quantize rope qk_norm_rope",
    "query and key projections": "nvfp4_linear multi_linear qk_norm_rope",
    "token compressor": "compressor_csa compressor_hca compressor_idle",
    "indexer and top-k": "indexer_logits indexer_topk",
    "attention": "fmha_multitile fmha_decode fmha_fp8",
    "output projection": "grouped_linear rope",
    "norm before the experts": "rmsnorm_quantize",
    "router": "router",
    "routed experts": "moe_nvfp4 swiglu_quantize",
    "shared expert": "shared_expert",
    "final norm, head, drafts, sampler": "hc_head lm_head mtp_tiny sampler",
    "caches": "cache_append cache_memory cache_rewind",
    "checkpoints": "checkpoint_tiny",
    "batched prefill and decode": "prefill_tiny decode_tiny",
    "formats": "quantize_nvfp4 quantize_fp8",
}
# Their kernels bring their stages with them.
OPEN = {"quantize_nvfp4", "quantize_fp8", "rmsnorm_quantize", "swiglu_quantize"}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_gates_with_cases_and_limits(root: Path, row: str) -> None:
    gates = load(root)
    for name in ROWS[row].split():
        if name not in OPEN or gates[name].state != "planned":
            assert gates[name].cases and gates[name].limits, name
            assert (root / "stages" / f"{gates.stage(name)}.py").is_file()


def test_oracles_of_planned_gates_pass_and_reject_their_mistakes(root: Path, tmp_path: Path) -> None:
    gates = load(root)
    names = [name for name in gates.order if gates[name].state == "planned" and gates[name].cases]
    if not names:
        pytest.skip("every gate has its kernel")
    command = [sys.executable, "run_gate.py", *names, "--oracle-only", "--seed", "0", "-q"]
    command += ["-k", "not t8192_d128_fp8 and not t8192_d32", "--report", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    rejected: dict[str, set[str]] = {gate: set() for gate in names}
    known: dict[str, set[str]] = {gate: set() for gate in names}
    for case in result["cases"]:
        assert case["status"] == "pass", case
        known[case["gate"]] |= set(case.get("variants", {}))
        rejected[case["gate"]] |= {name for name, status in case.get("variants", {}).items() if status != "pass"}
    assert rejected == known and all(len(variants) >= 5 for variants in known.values())
