"""The names of the attention kernel are those of its budget and of what it allocates."""

from __future__ import annotations

import pytest
import torch

from emulator.views import Labels, Recorder
from kernels.fmha import fmha
from kernels.fmha.config import FmhaConfig
from kernels.fmha.names import barriers, fields, names, roles

CONFIGS = [FmhaConfig("f16", 64), FmhaConfig("bf16", 64, "identity", 3), FmhaConfig("f16", 128, "none")]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_names_are_accepted_and_cover_the_column_map(config):
    labels = Labels.of(**names(config))
    assert max(f.end for f in labels.fields) <= config.tmem.allocated
    assert (labels.field("S[1]").column, labels.field("S[1]").dtype) == (config.tmem.S.stride, "f32")
    assert ("O" in fields(config)) == config.has_pv == ("P[0]" in fields(config))
    if config.has_pv:
        assert labels.field("P[1]").dtype == config.dtype and labels.field("P[1]").column == labels.field("S[1]").column
        assert labels.field("O").columns == config.head_dim
    assert sorted(roles(config)) == list(range(config.warps.threads // 32))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_barriers_are_in_the_order_in_which_the_kernel_lays_them_out(config, backend):
    q = torch.zeros(1, 128, 1, config.head_dim, dtype={"f16": torch.float16, "bf16": torch.bfloat16}[config.dtype])
    recorder = Recorder(**names(config))
    backend.listeners = (recorder,)
    try:
        fmha(q, q, q, softmax=config.softmax, kv_stages=config.kv_stages, backend=backend)
    finally:
        backend.listeners = ()
    found = recorder.recording.cta().barriers
    counts = {}
    for pipe in config.pipes.values():
        counts |= {f"{pipe.name}.full[{n}]": pipe.full for n in range(pipe.stages)}
        counts |= {f"{pipe.name}.empty[{n}]": pipe.empty for n in range(pipe.stages)}
    named = recorder.labels.barrier_names(list(found))
    assert {named[offset]: count for offset, count in found.items()} == counts
    assert barriers(config) == [named[offset] for offset in sorted(found)]
