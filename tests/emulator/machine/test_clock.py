"""Clocks: they move on with instructions and sleep, and who waits for them is not stuck."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.errors import Deadlock
from tests.emulator.machine.arena import Arena


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_sleep_moves_the_clock_of_its_warp(engine: str) -> None:
    out = np.zeros(4, np.uint64)
    body = """mov.u64 %rd5, %globaltimer; nanosleep.u32 5000; mov.u64 %rd6, %globaltimer; sub.u64 %rd7, %rd6, %rd5;
    st.global.u64 [%rd1], %rd7; mov.u64 %rd5, %clock64; nanosleep.u32 70; mov.u64 %rd6, %clock64;
    sub.u64 %rd7, %rd6, %rd5; st.global.u64 [%rd1+8], %rd7; ret;"""
    Arena(out=out).run(body, engine=engine)
    assert 5000 <= out[0] < 5010 and 70 <= out[1] < 80


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
@pytest.mark.parametrize("pause", ["", "nanosleep.u32 100;"])
def test_a_loop_that_waits_for_time_ends(pause: str, engine: str) -> None:
    """A warp that looks at the clock is not spinning for ever; one that only sleeps is."""
    out = np.zeros(1, np.uint64)
    body = f"""mov.u64 %rd5, %globaltimer; L: {pause} mov.u64 %rd6, %globaltimer; sub.u64 %rd7, %rd6, %rd5;
    setp.lt.u64 %p1, %rd7, 20000; @%p1 bra L; st.global.u64 [%rd1], %rd7; ret;"""
    Arena(out=out).run(body, engine=engine)
    assert 20000 <= out[0] < 20200
    forever = "L: nanosleep.u32 100; ld.volatile.global.u64 %rd5, [%rd1]; setp.ne.u64 %p1, %rd5, 0; @%p1 bra L; ret;"
    with pytest.raises(Deadlock, match="spins without changing any state"):
        Arena(out=out).run(forever, engine=engine)
