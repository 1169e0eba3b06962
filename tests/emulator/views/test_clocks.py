"""Lamport clocks."""

from __future__ import annotations

from emulator.views.clocks import Clocks


def test_a_warp_counts_and_a_wait_moves_it_on_but_never_back():
    clocks = Clocks()
    a, b = ("cta", 0), ("cta", 1)
    assert [clocks.tick(a) for _ in range(3)] == [1, 2, 3] and clocks.at(b) == 0
    assert clocks.meet(b, 3) == 3 and clocks.meet(b, 1) == 3 and clocks.tick(b) == 4


def test_the_latest_arrival_lets_others_go_on():
    clocks = Clocks()
    assert clocks.last_arrival(("x", 0)) == (None, -1, 0)
    clocks.arrive_at(("x", 0), 7, "tma", 20)
    clocks.arrive_at(("x", 0), 5, 3, 21)
    clocks.arrive_at(("x", 1), 1, 4, 22)
    assert clocks.last_arrival(("x", 0)) == ("tma", 20, 7)
    assert clocks.last_arrival(("x", 1)) == (4, 22, 1)


def test_a_unit_works_in_order_one_step_each():
    clocks = Clocks()
    assert [clocks.queue("tensor", begin) for begin in (4, 4, 2, 9)] == [4, 5, 6, 9]
