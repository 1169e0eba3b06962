"""Counting of launches, waits and bytes on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends.base import Counters
from backends.count import counting

X = torch.arange(6.0).reshape(2, 3)
MASK = X > 2


def count(run) -> Counters:
    counters = Counters()
    with counting(counters):
        run()
    return counters


VIEWS = {
    "view": lambda: X.view(3, 2)[1:].t().unsqueeze(0).expand(2, 2, 2),
    "split": lambda: X.split(1),
    "unbind": lambda: list(X),
    "view as another type": lambda: X.view(torch.int32),
    "contiguous of a contiguous tensor": lambda: X.contiguous(),
    "detach": lambda: X.detach(),
    "empty": lambda: torch.empty(3, 4),
    "empty_like": lambda: torch.empty_like(X),
    "new_empty": lambda: X.new_empty(3),
    "a list to the device": lambda: torch.tensor([1.0, 2.0]),
    "zeros without elements": lambda: torch.zeros(0, 4),
    "sum of tensors without elements": lambda: X[:0] + X[:0],
    "metadata": lambda: (X.shape, X.numel(), X.stride(), len(X), X.data_ptr(), X.dtype),
}


@pytest.mark.parametrize("run", VIEWS.values(), ids=VIEWS.keys())
def test_views_and_allocations_are_no_launch(run):
    counters = count(run)
    assert (counters.launches, counters.syncs) == (0, 0), counters


OPERATIONS = {
    "add": (lambda: X + 1, ["add"]),
    "in place": (lambda: X.clone().add_(1), ["clone", "add_"]),
    "zeros": (lambda: torch.zeros(3), ["zeros"]),
    "convert": (lambda: X.to(torch.bfloat16), ["_to_copy"]),
    "contiguous of a transpose": (lambda: X.t().contiguous(), ["clone"]),
    "reshape that copies": (lambda: X.t().reshape(6), ["clone"]),
    "softmax": (lambda: torch.softmax(X, -1), ["_softmax"]),
    "assignment of a slice": (lambda: X.clone().__setitem__(0, torch.ones(3)), ["clone", "ones", "copy_"]),
    "where with three arguments": (lambda: torch.where(MASK, X, X), ["where"]),
    "product": (lambda: X @ X.t(), ["mm"]),
    "reduction to a scalar": (lambda: X.sum(), ["sum"]),
    "index by positions": (lambda: X[:, torch.tensor([0, 1])], ["index"]),
    "repeat with a known size": (
        lambda: torch.repeat_interleave(torch.tensor([1, 2]), output_size=3),
        ["repeat_interleave"],
    ),
}


@pytest.mark.parametrize("run, expected", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_operations_are_launches(run, expected):
    counters = count(run)
    assert counters.operations == expected and counters.launches == len(expected)
    assert counters.syncs == 0


WAITS = {
    "item": (lambda: X[0, 0].item(), ["item"], 0),
    "float": (lambda: float(X[0, 0]), ["item"], 0),
    "int": (lambda: int(X[0, 0]), ["item"], 0),
    "bool": (lambda: bool(X[0, 0] > 1), ["item"], 1),
    "index of a list": (lambda: [1, 2][torch.tensor(1)], ["item"], 0),
    "data-dependent branch": (lambda: 1 if (X > 3).any() else 0, ["item"], 2),
    "tolist": (lambda: X.tolist(), ["tolist"], 0),
    "cpu": (lambda: X.cpu(), ["cpu"], 0),
    "to cpu": (lambda: X.to("cpu"), ["to"], 0),
    "to cpu by keyword": (lambda: X.to(device=torch.device("cpu")), ["to"], 0),
    "numpy": (lambda: X.numpy(), ["numpy"], 0),
    "asarray": (lambda: np.asarray(X), ["numpy"], 0),
    "print": (lambda: repr(X), ["repr"], 0),
    "nonzero": (lambda: X.nonzero(), ["nonzero"], 1),
    "where with one argument": (lambda: torch.where(MASK), ["nonzero"], 1),
    "masked_select": (lambda: X.masked_select(MASK), ["masked_select"], 1),
    "boolean index": (lambda: X[MASK], ["index"], 1),
    "boolean index assignment": (lambda: X.clone().__setitem__(MASK, 0.0), ["index_put_"], 2),
    "unique": (lambda: X.unique(), ["_unique2"], 1),
    "unique_consecutive": (lambda: X.unique_consecutive(), ["unique_consecutive"], 1),
    "repeat without a size": (lambda: torch.repeat_interleave(torch.tensor([1, 2])), ["repeat_interleave"], 1),
    "bincount": (lambda: torch.bincount(torch.tensor([0, 1])), ["bincount"], 1),
    "equal": (lambda: torch.equal(X, X), ["equal"], 1),
    "allclose": (lambda: torch.allclose(X, X), ["allclose"], 1),
}


@pytest.mark.parametrize("run, waits, launches", WAITS.values(), ids=WAITS.keys())
def test_reads_by_the_host_are_waits(run, waits, launches):
    counters = count(run)
    assert counters.sync_calls == waits
    assert counters.launches == launches


def test_peak_bytes_is_the_most_alive_at_once():
    def run():
        a = torch.zeros(1024)  # 4096 bytes
        b = a + a  # 8192
        del a
        c = b[:512] * 2  # 4096 + 2048
        b[:512].add_(c)

    assert count(run).peak_bytes == 8192
    assert count(lambda: X + 0).peak_bytes == 24
    assert count(lambda: X.view(6)).peak_bytes == 0


def test_results_are_untouched():
    counters = Counters()
    with counting(counters):
        assert (X * 2).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert counters.operations == ["mul"] and counters.sync_calls == ["tolist"]
