"""One stored matrix into the precision that is wanted: exact where a format holds the values, else by our quantiser."""

from __future__ import annotations

import torch

from model.weights import Quantised, Weight, dense
from oracles.formats import mxfp4, nvfp4


def to_nvfp4(*weights: Weight) -> tuple[Quantised, ...]:
    """Matrices [N, K] that share one global scale (w1 and w3 of an expert do) in NVFP4.

    MXFP4 is cast exactly: codes stay, each scale of 32 values becomes two of 16. Raises ValueError if its exponents are
    too far apart for that. NVFP4 stays as it is. All else is quantised: global scale amax / (6
    448)."""
    if all(isinstance(w, Quantised) and w.form == "mxfp4" for w in weights):
        return _cast([w for w in weights if isinstance(w, Quantised)])
    if all(isinstance(w, Quantised) and w.form == "nvfp4" for w in weights):
        return tuple(w for w in weights if isinstance(w, Quantised))
    values = [dense(w) for w in weights]
    scale = torch.stack([nvfp4.global_scale(v) for v in values]).amax()
    return tuple(Quantised("nvfp4", *nvfp4.quantize(v, scale), global_scale=scale) for v in values)


def _cast(weights: list[Quantised]) -> tuple[Quantised, ...]:
    exponent = mxfp4.shared_exponent(*(w.scales for w in weights))
    cast = [mxfp4.to_nvfp4(w.data, w.scales, exponent=exponent) for w in weights]
    return tuple(Quantised("nvfp4", data, scales, global_scale=scale) for data, scales, scale in cast)
