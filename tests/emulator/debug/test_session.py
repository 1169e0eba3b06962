"""A launch that stands still while somebody looks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from emulator import debug
from emulator.debug import BadBreakpoint, LeftBehind, NeverReached, Session
from emulator.errors import Deadlock
from tests.emulator.machine import pipeline
from tests.emulator.views.samples import NAMES, fold, tensor


def session(body=pipeline.RIGHT, **settings):
    return Session(lambda listener: fold(listener, body, **settings)[0], **NAMES)


def threads():
    return [t for t in threading.enumerate() if t.name == "debugged launch"]


@pytest.mark.parametrize("policy", ["in_order", "latest"])
def test_from_place_to_place_and_to_the_end(policy):
    with session(policy=policy) as s:
        stop = s.until(debug.python("pipe.py:23").of(times=2))
        assert (stop.warp, stop.instruction.loc[1]) == (0, 23) and s.stop is stop
        after = s.until(debug.barrier("p.full[1]", "wait"))
        assert after.warp in (1, 2)
        with pytest.raises(LeftBehind):
            stop.barriers()
        np.testing.assert_array_equal(s.finish(), pipeline.expected())
        np.testing.assert_array_equal(s.finish(), pipeline.expected())
        with pytest.raises(NeverReached, match="the launch has ended normally"):
            s.until(debug.python("pipe.py:23"))
        with pytest.raises(NeverReached, match="the launch has ended"):
            s.step()
    assert not threads()


def test_steps():
    with session() as s:
        assert s.step().index == 0
        assert [s.step().index for _ in range(3)] == [1, 2, 3]
        assert s.step(count=4).index == 7
        warp = s.stop.warp
        assert s.step("block").warp == warp
        before = s.stop.step
        assert s.step("any").step == before + 1
        with pytest.raises(BadBreakpoint, match=r"step\(count=0\); allowed: at least 1"):
            s.step(count=0)
        with pytest.raises(BadBreakpoint, match="allowed: instruction, block, any"):
            s.step("warp")


def test_several_points_stop_at_the_first():
    with session() as s:
        assert s.until(debug.mma(4), debug.python("pipe.py:23")).reason == "Python line pipe.py:23"


def test_the_end_of_a_context_gives_the_launch_up():
    with session() as s:
        s.until(debug.python("pipe.py:23"))
        assert len(threads()) == 1
    assert not threads()
    with pytest.raises(NeverReached, match="it was given up"):
        s.until(debug.python("pipe.py:23"))
    with session():
        pass
    assert not threads()


def test_never_reached_says_where_it_ended():
    with session() as s, pytest.raises(NeverReached) as raised:
        s.until(debug.python("pipe.py:23").of(times=99))
    said = str(raised.value)
    assert said.startswith("never reached: Python line pipe.py:23, time 99 (passed 6 times); kernel ended after ")
    assert "the last one in CTA (0, 0, 0), " in said and "PTX line" in said


def test_never_reached_because_it_hangs():
    hung = pipeline.RIGHT.replace("[%r13], 2048;\nshl", "[%r13], 2064;\nshl")
    with session(hung) as s:
        s.until(debug.python("pipe.py:23"))
        with pytest.raises(
            NeverReached, match="never reached: Python line pipe.py:32; the launch ended by Deadlock"
        ) as raised:
            s.until(debug.python("pipe.py:32"))
        assert isinstance(raised.value.__cause__, Deadlock)
        with pytest.raises(Deadlock):
            s.finish()


def test_bad_places_leave_the_launch_standing():
    with session() as s:
        s.until(debug.python("pipe.py:23"))
        for point in (debug.line(1), debug.barrier("nobody"), debug.instruction(10**6)):
            with pytest.raises(BadBreakpoint):
                s.until(point)
        assert s.until(debug.barrier("p.full[1]")).warp == 0
        with pytest.raises(BadBreakpoint, match=r"until\(\) of no point"):
            s.until()


def test_a_bad_place_before_the_launch_stops_it():
    with session() as s, pytest.raises(BadBreakpoint, match="PTX line 1 holds no instruction"):
        s.until(debug.line(1))
    assert not threads()


def test_what_the_call_raises_is_raised():
    def broken(listener):
        raise ValueError("no such thing")

    with Session(broken) as s, pytest.raises(ValueError, match="no such thing"):
        s.finish()
    with Session(broken) as s, pytest.raises(NeverReached, match="ended by ValueError: no such thing"):
        s.until(debug.mma(0))


def test_a_call_without_a_launch_reaches_nothing():
    with Session(lambda listener: 3) as s, pytest.raises(NeverReached, match="no kernel was launched"):
        s.until(debug.mma(0))
    with Session(lambda listener: 3) as s:
        assert s.finish() == 3


def test_several_launches_of_one_call():
    def twice(listener):
        fold(listener)
        tensor(listener)

    with Session(twice, roles=NAMES["roles"]) as s:
        s.until(debug.named_barrier(0))
        # pipe.py:20 is in the first kernel only, and its second pass of the second kernel never comes.
        assert s.until(debug.python("pipe.py:23").of(times=6)).kernel == "kernel"
        s.finish()


class Backend:
    """What an emulated backend offers to a session."""

    def __init__(self) -> None:
        self.listeners: tuple = ()

    def call(self):
        (listener,) = self.listeners
        return fold(listener)[0]


def test_listeners_of_a_backend_are_set_and_restored():
    backend = Backend()
    with Session(backend.call, backend, **NAMES) as s:
        s.until(debug.python("pipe.py:23"))
        assert len(backend.listeners) == 1
        s.finish()
    assert backend.listeners == ()
    with Session(backend.call, backend, **NAMES) as s:
        s.until(debug.python("pipe.py:23"))
    assert backend.listeners == ()
    with pytest.raises(BadBreakpoint, match="a int has no listeners"):
        Session(backend.call, 3)


@pytest.fixture(scope="module")
def attention():
    """Inputs, names and a call of the attention kernel from compiled host code."""
    pytest.importorskip("cutlass")
    import torch

    import backends
    from kernels.fmha import fmha
    from kernels.fmha.config import FmhaConfig
    from kernels.fmha.names import names

    backend = backends.get("emulated", arch="sm_100a")
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn((1, rows, 1, 64), generator=rng).half() for rows in (128, 256, 256))
    return q, k, backend, names(FmhaConfig("f16", 64)), lambda: fmha(q, k, v, backend=backend)


def test_matrix_products_of_compiled_host_code(attention):
    q, k, backend, names, call = attention
    with Session(call, backend, **names) as s:
        stop = s.until(debug.mma(3))
        scores = stop.tensor("S[0]")
        want = q[0, :, 0].float().numpy() @ k[0, :128, 0].float().numpy().T
        np.testing.assert_allclose(scores, want, atol=1e-4)
        assert np.isnan(stop.tensor("S[1]")).all()
        keys = stop.shared(1024 + q.numel() * 2, (128, 64), dtype="f16", swizzle="128B")
        np.testing.assert_array_equal(keys, k[0, :128, 0].numpy())
        np.testing.assert_array_equal(stop.global_tensor("k"), k.numpy())
        before = s.until(debug.mma(4, "before"))
        assert before.instruction.opcode.startswith("tcgen05.mma") and before.labels.warp(before.warp) == "mma (8)"
        stop = s.until(debug.barrier("s.empty[0]"))
        weights = stop.tensor("P[0]")
        assert weights.shape == (128, 128) and 0 <= weights.min() and weights.max() == 1
        out = s.finish().out
    assert bool(np.isfinite(out.float().numpy()).all())


def test_inside_emulated(attention):
    import backends

    _, _, _, names, _ = attention
    with backends.emulated("sm_100a") as backend:
        from kernels.fmha import fmha

        q, k = attention[0], attention[1]
        with Session(lambda: fmha(q, k, k, backend=backend), backend, **names) as s:
            assert s.until(debug.mma(0)).kernel.startswith("FmhaSm100")
