"""Products with a model's weights: on the linear kernels, or dense in PyTorch beside kernels around them."""

from __future__ import annotations

from typing import Protocol

import torch

from kernels import linear as kernel
from model import reference
from model.kernels import packing
from model.kernels.inputs import Input
from model.packs import Bound
from model.weights import Weight, dense
from oracles import linear as products

Tensor = torch.Tensor


class Linears(Protocol):
    """x [N, K] with weights [N_i, K] -> BF16. `swizzled`: whether codes of x are wanted with swizzled scales."""

    swizzled: bool

    def one(self, x: Input, weight: Weight) -> Tensor:
        """[N, N_i]."""

    def several(self, x: Input, *weights: Weight) -> list[Tensor]:
        """[N, N_i] of each."""

    def grouped(self, x: Input, weight: Weight, groups: int) -> Tensor:
        """x [N, G K] in groups, a block-diagonal weight [G R, K] -> [N, G R]."""


class Dense:
    """In PyTorch: f32 products of the weights' values, as the oracles have them."""

    swizzled = False

    def __init__(self, bound: Bound) -> None:
        pass

    def one(self, x: Input, weight: Weight) -> Tensor:
        """One weight."""
        return reference.linear(x.values, weight)

    def several(self, x: Input, *weights: Weight) -> list[Tensor]:
        """One after the other."""
        return [self.one(x, w) for w in weights]

    def grouped(self, x: Input, weight: Weight, groups: int) -> Tensor:
        """Block-diagonal."""
        rows = x.values.unflatten(1, (groups, -1))
        return products.grouped_linear(rows, dense(weight), dtype=torch.float32).to(rows.dtype).flatten(1)


class Exact:
    """On sm_90a: weights of 4 or 8 bits as they are, exact products of BF16 values."""

    swizzled = False

    def __init__(self, bound: Bound) -> None:
        self.packs, self.backend = bound.packs, bound.backend

    def one(self, x: Input, weight: Weight) -> Tensor:
        """One launch."""
        found: Tensor = kernel.linear(x.values, packing.exact(self.packs, weight), backend=self.backend)
        return found

    def several(self, x: Input, *weights: Weight) -> list[Tensor]:
        """One launch."""
        return kernel.multi_linear(x.values, packing.exact(self.packs, *weights), backend=self.backend)

    def grouped(self, x: Input, weight: Weight, groups: int) -> Tensor:
        """One launch."""
        packed, rows = packing.exact(self.packs, weight, groups=groups), x.values.unflatten(1, (groups, -1))
        return kernel.grouped_linear(rows, packed, backend=self.backend).flatten(1)


class Scaled:
    """On sm_100a: NVFP4 codes of x times NVFP4 weights, block scales in the tensor core."""

    swizzled = True

    def __init__(self, bound: Bound) -> None:
        self.packs, self.backend = bound.packs, bound.backend

    def one(self, x: Input, weight: Weight) -> Tensor:
        """One launch."""
        found: Tensor = kernel.linear(x.nvfp4, packing.scaled(self.packs, weight), backend=self.backend)
        return found

    def several(self, x: Input, *weights: Weight) -> list[Tensor]:
        """One launch."""
        return kernel.multi_linear(x.nvfp4, packing.scaled(self.packs, *weights), backend=self.backend)

    def grouped(self, x: Input, weight: Weight, groups: int) -> Tensor:
        """One launch."""
        packed = packing.scaled(self.packs, weight, groups=groups)
        return kernel.grouped_linear(x.nvfp4, packed, backend=self.backend).flatten(1)
