"""The model's operations on kernels. Signatures are those of `model.reference`, but for `stored`, which is bound."""

from __future__ import annotations

from typing import Any

import torch

from kernels import mhc
from kernels.qk_norm_rope import qk_norm_rope
from kernels.quantize_fp8 import quantize_fp8
from kernels.quantize_nvfp4 import quantize_nvfp4
from kernels.rmsnorm_quantize import rmsnorm_quantize
from kernels.rope import rope
from kernels.shared.quantised import Quantised
from kernels.swiglu_quantize import swiglu_quantize
from model import reference
from model.config import Config
from model.kernels.inputs import Input
from model.kernels.linears import Linears
from model.packs import Bound
from model.reference import F32, Angles
from model.weights import Attention, HyperConnection, Indexer, Moe, Mtp, Weight, dense
from oracles import experts, indexer
from oracles.formats import hadamard, index_entry

Tensor = torch.Tensor


class Functions:
    """Operations of one model: activations BF16, products by `linears`.

    Where inputs of linears are stored as FP8 or NVFP4, a pass makes the codes. Linears that read BF16 get the values
    that the codes stand for, from PyTorch, exactly; so do router, compressors and the indexer. Where inputs are stored
    as they are, norms and SwiGLU are PyTorch's."""

    def __init__(self, bound: Bound, linears: Linears) -> None:
        self.bound, self.linears = bound, linears
        self.backend, self.stored, self.scale = bound.backend, bound.stored, bound.global_scale

    # ------------------------------------------------------------------ hyper-connections

    def mhc_pre(
        self, streams: Tensor, hc: HyperConnection, weight: Tensor, config: Config
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Two launches; the embedding's streams share memory and are copied apart first."""
        found = mhc.mhc_pre_rmsnorm_quantize(
            streams.contiguous(),
            hc.fn,
            hc.scale,
            hc.base,
            weight,
            self.scale,
            format=self.stored,
            eps=config.rms_norm_eps,
            mix_eps=config.hc_eps,
            norm_eps=config.rms_norm_eps,
            iterations=config.hc_sinkhorn_iters,
            backend=self.backend,
        )
        return Input(self.bound, found.x).values, found.c, found.m

    def mhc_post(self, y: Tensor, streams: Tensor, c: Tensor, m: Tensor) -> Tensor:
        """One launch."""
        given = (y.contiguous(), streams.contiguous(), c.contiguous(), m.contiguous())
        return mhc.mhc_post(*given, backend=self.backend)

    # ------------------------------------------------------------------ attention

    def qkv_projection(self, x: Tensor, w: Attention, angles: Angles, config: Config) -> tuple[Tensor, Tensor, Tensor]:
        """Both projections of x together, norm, the second projection; norm and rotation where q and k lie."""
        latent, k = self.linears.several(self.kept_before(x), w.wq_a, w.wkv)
        low = self.normed(latent, w.q_norm, config)
        q = self.linears.one(low, w.wq_b).unflatten(-1, (config.num_attention_heads, -1))
        qk_norm_rope(q, k, w.kv_norm, *angles, eps=config.rms_norm_eps, backend=self.backend)
        return q, low.values, k

    def output_projection(self, o: Tensor, w: Attention, angles: Angles, config: Config) -> Tensor:
        """Rotation back where o lies, then both linears."""
        rope(o, *angles, inverse=True, backend=self.backend)
        z = self.linears.grouped(self.kept(o.flatten(1)), w.wo_a, config.o_groups)
        return self.linears.one(self.kept(z), w.wo_b)

    def index_queries(
        self, low: Tensor, x: Tensor, w: Indexer, angles: Angles, form: str, config: Config
    ) -> tuple[Tensor, Tensor]:
        """The linear and its rotation; Hadamard, rounding as the keys' and head weights are PyTorch's."""
        q = self.linears.one(self.kept_before(low), w.wq_b).unflatten(-1, (config.index_n_heads, -1))
        q = rope(q, *angles, backend=self.backend)
        if form in ("fp8", "fp4"):
            q = hadamard.transform(q, dtype=F32).to(q.dtype).to(F32)
            q = index_entry.rounded_fp4(q) if form == "fp4" else index_entry.rounded_fp8(q)
        u = indexer.head_weights(
            x, dense(w.weights_proj), head_dim=config.index_head_dim, dtype=F32, kind=reference.KIND
        )
        return q.to(F32), u

    # ------------------------------------------------------------------ experts, head, draft block

    def shared_expert(self, x: Tensor, w: Moe, config: Config) -> Tensor:
        """Gate and up together, SwiGLU, down."""
        gate, up = self.linears.several(self.kept_before(x), w.shared_w1, w.shared_w3)
        limit = config.swiglu_limit
        if self.stored == "plain":
            h = self.kept_before(experts.swiglu(gate, up, limit=limit, dtype=F32).to(x.dtype))
        else:
            h = self.stored_by(swiglu_quantize(gate, up, self.scale, limit=limit, **self.how()))
        return self.linears.one(h, w.shared_w2)

    def logits(self, x: Tensor, weight: Tensor, vocabulary: Weight, config: Config) -> Tensor:
        """f32 values of what the linear stores in BF16."""
        return self.linears.one(self.normed(x, weight, config), vocabulary).to(F32)

    def mtp_combine(self, streams: Tensor, embedded: Tensor, w: Mtp, config: Config) -> Tensor:
        """Two norms, two linears, and their sum in PyTorch."""
        e = self.linears.one(self.normed(embedded, w.enorm, config), w.e_proj)
        h = self.linears.one(self.normed(streams.flatten(0, 1), w.hnorm, config), w.h_proj)
        return e[:, None] + h.view(streams.shape)

    # ------------------------------------------------------------------ inputs of linears

    def how(self) -> dict[str, Any]:
        """Settings of the passes that store."""
        return {"format": self.stored, "swizzled": self.linears.swizzled, "backend": self.backend}

    def stored_by(self, x: Quantised) -> Input:
        """What a pass has stored."""
        return Input(self.bound, x, swizzled=self.linears.swizzled)

    def kept_before(self, x: Tensor) -> Input:
        """Values that were stored when they were made."""
        return Input(self.bound, x, swizzled=self.linears.swizzled)

    def normed(self, x: Tensor, weight: Tensor, config: Config) -> Input:
        """RMSNorm of rows [N, K], stored."""
        if self.stored == "plain":
            return self.kept_before(reference.normed(x, weight, config, x.dtype))
        return self.stored_by(rmsnorm_quantize(x, weight, self.scale, eps=config.rms_norm_eps, **self.how()))

    def kept(self, x: Tensor) -> Input:
        """Rows [N, K], stored."""
        if self.stored == "fp8":
            return self.stored_by(quantize_fp8(x, backend=self.backend))
        if self.stored == "nvfp4":
            swizzled = self.linears.swizzled
            return self.stored_by(quantize_nvfp4(x, self.scale, swizzled=swizzled, backend=self.backend))
        return self.kept_before(x)
