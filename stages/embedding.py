"""Token ids become their embedding in every residual stream, unscaled.

    streams[t, j, :] = E[ids[t]]   for each of the 4 streams j

ids (t) int64, weight (v, d) bf16. Output: streams (t, 4, d) in the dtype of the activations, exactly.
Not proven here: that later stages may write into the streams (they are one memory).
"""

from __future__ import annotations

from typing import Any

import torch

from model.ops import Ops
from stages.shared import tiny
from stages.shared.tiny import Tensors

STREAMS = 4


def inputs(case: Any, rng: torch.Generator) -> Tensors:
    """ids with the first and the last token of the vocabulary among them, and the table."""
    ids = torch.randint(0, case.vocabulary, (case.t,), generator=rng)
    if case.t > 1:
        ids[0], ids[-1] = case.vocabulary - 1, 0
    return {"ids": ids, "weight": torch.randn(case.vocabulary, case.d, generator=rng).bfloat16()}


def run(x: Tensors, case: Any, backend: Any, mutant: type | None = None) -> Tensors:
    """`Ops.embed`."""
    return {"streams": Ops.oracles().embed(x["ids"], x["weight"], tiny.config(), _dtype(case))}


def oracle(x: Tensors, case: Any, kind: str) -> Tensors:
    """Row by row."""
    return {"streams": _rows(x["ids"], x["weight"].double())}


def plain(x: Tensors, case: Any) -> Tensors:
    """Rows of the table in the dtype of the activations."""
    return {"streams": _rows(x["ids"], x["weight"].to(_dtype(case)))}


def wrong(x: Tensors, case: Any) -> dict[str, Tensors]:
    """Other rows, other scales."""
    if not case.t:
        return {}
    wide = x["weight"].double()
    right = _rows(x["ids"], wide)
    only_first = right.clone()
    only_first[:, 1:] = 0
    return {
        # scaled by the root of the hidden size, as other models do
        "scaled": {"streams": right * case.d**0.5},
        # shared out among the streams
        "divided_by_streams": {"streams": right / STREAMS},
        # only stream 0 is set
        "one_stream": {"streams": only_first},
        # ids count from 1
        "next_row": {"streams": _rows((x["ids"] + 1) % case.vocabulary, wide)},
        # stream is the outer dimension
        "streams_outside": {"streams": right[:, 0].repeat(STREAMS, 1).view(right.shape)},
    }


def _dtype(case: Any) -> torch.dtype:
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[case.get("dtype", "bf16")]


def _rows(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    found = [weight[int(i)].expand(STREAMS, -1) for i in ids]
    return torch.stack(found) if found else weight.new_zeros(0, STREAMS, weight.shape[1])
