"""Pipelines with checked arrivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.shared.pipelines import Pipe, Side, make_pipeline

LOAD, MMA, SOFTMAX = Side("load", "tma", 1), Side("mma", "umma", 1), Side("softmax", "threads", 4)
K = Pipe("k", 2, LOAD, MMA, full=1, empty=1, tx_bytes=16384)
S = Pipe("s", 2, MMA, SOFTMAX, full=1, empty=128)


@pytest.mark.parametrize(("side", "arrivals"), [(LOAD, 1), (MMA, 1), (SOFTMAX, 128), (Side("x", "threads", 1), 32)])
def test_arrivals_of_a_phase(side: Side, arrivals: int) -> None:
    assert side.arrivals == arrivals


def test_right_pipelines_have_no_problems() -> None:
    assert K.problems() == []
    assert S.problems() == []
    assert (K.barriers, S.barriers) == (4, 4)


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        (
            replace(S, empty=4),
            "pipeline s: barrier 'empty' expects 4 arrivals, "
            "the kernel makes 128 (softmax: 4 warps x 32 threads = 128)",
        ),
        (
            replace(K, full=2),
            "pipeline k: barrier 'full' expects 2 arrivals, the kernel makes 1 (load: 1 elected lane with expect_tx)",
        ),
        (replace(K, tx_bytes=0), "pipeline k: tx_bytes=0, producer is tma; only tma has bytes"),
        (replace(S, tx_bytes=16), "pipeline s: tx_bytes=16, producer is umma; only tma has bytes"),
        (replace(K, stages=0), "pipeline k: stages=0; at least 1"),
        (replace(K, producer=Side("load", "tma", 2)), "pipeline k: load arrives by tma from 2 warps; one may"),
    ],
)
def test_each_disagreement_is_named(pipe: Pipe, message: str) -> None:
    assert pipe.problems() == [message]


def test_arithmetic_is_one_line() -> None:
    assert K.arithmetic() == (
        "pipeline k: 2 stages, 16384 bytes a stage; full <- load: 1 elected lane with expect_tx; "
        "empty <- mma: 1 tcgen05.commit"
    )


@pytest.mark.usefixtures("backend")
def test_a_pair_of_sides_without_a_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match="pipeline x: no pipeline from tma to threads"):
        make_pipeline(Pipe("x", 1, LOAD, SOFTMAX, full=1, empty=128, tx_bytes=16), None)
