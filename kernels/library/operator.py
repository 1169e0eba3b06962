"""How an operator is registered: a function whose signature is the schema, and what its results look like."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

Shapes = Callable[[Any], Any]
"""Results without values; the operator's arguments are attributes of what it is given."""


def operator(name: str, shapes: Shapes, *, writes: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Register the function below as `dsv4::name`, which writes the arguments `writes` and no others.

    `shapes(a)` runs where torch traces, on tensors without values and perhaps with symbolic sizes.
    """

    def register(function: Callable[..., Any]) -> Any:
        signature = inspect.signature(function)

        def fake(*args: Any, **kwargs: Any) -> Any:
            return shapes(SimpleNamespace(**signature.bind(*args, **kwargs).arguments))

        made = torch.library.custom_op(f"dsv4::{name}", mutates_args=writes)(function)
        made.register_fake(fake)
        return made

    return register
