"""Schedules: both engines draw the same, a replay is exact, files are checked, and shrinking leaves what matters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emulator
from emulator.errors import Deadlock, LaunchError, ScheduleError
from emulator.events import Turns
from emulator.machine.schedule import Decision, First, Hold, Schedule, Slice, dumps, load, loads, save
from emulator.machine.shrink import shrink
from emulator.machine.story import Story
from tests.emulator.machine.arena import MY_WORD, Arena
from tests.emulator.machine.pipeline import GIVEN_EARLY, ONE_WAITS, RIGHT, expected, run
from tests.emulator.machine.test_engines import DECLARATIONS, KERNELS

ENGINES = ("numpy", "llvm")
EARLY_SEED, HANGING_SEED = 4, 3
ORIGIN = (0, 0, 0)


def outcome(body: str, **settings: Any) -> tuple[str, Any]:
    """`right`, `wrong` or `hang`, and what was decided."""
    try:
        out, launch = run(body, **settings)
    except Deadlock as error:
        return "hang", error.schedule
    return "right" if (out == expected()).all() else "wrong", launch.schedule


# ---------------------------------------------------------------- random and replay
@pytest.mark.parametrize("name", KERNELS)
def test_engines_take_the_same_decisions(name: str) -> None:
    for seed in range(6):
        runs = []
        for engine in ENGINES:
            out = np.arange(128, dtype=np.uint32) * 3
            block = 64 if name == "a queue of one place" else 57
            settings = {"declarations": DECLARATIONS, "grid": 2, "block": block, "policy": "random", "seed": seed}
            launch = Arena(out=out).run(MY_WORD + KERNELS[name], engine=engine, **settings)
            runs.append((out.tolist(), launch.schedule, launch.instructions, launch.by_line))
        assert runs[0] == runs[1]


def test_a_right_kernel_gives_the_same_bits_under_every_seed() -> None:
    lists = set()
    for seed in range(16):
        verdict, schedule = outcome(RIGHT, policy="random", seed=seed)
        assert verdict == "right"
        lists.add(schedule.decisions)
    assert len(lists) == 16
    assert {type(d) for decisions in lists for d in decisions} == {Hold, First, Slice}


@pytest.mark.parametrize("body", [RIGHT, GIVEN_EARLY, ONE_WAITS], ids=["right", "early", "one waits"])
@pytest.mark.parametrize("policy", ["random", "latest"])
def test_a_replay_is_exact_in_both_engines(body: str, policy: str) -> None:
    """Turn by turn: bits, counts, and whether it hangs."""
    for seed in range(12) if policy == "random" else (0,):
        first: list[Turns] = []
        told = []
        verdict, schedule = outcome(body, policy=policy, seed=seed, listeners=[first.append])
        for engine in ENGINES:
            assert outcome(body, policy="replay", schedule=schedule, engine=engine) == (verdict, schedule)
        again = outcome(body, policy="replay", schedule=schedule, listeners=[told.append])
        assert again[0] == verdict
        assert [str(r) for r in told] != [] and _steps(told) == _steps(first)
        if verdict != "hang":
            settings = {"policy": policy, "seed": seed}
            outs = [run(body, **settings), run(body, policy="replay", schedule=schedule)]
            assert (outs[0][0] == outs[1][0]).all() and outs[0][1].by_line == outs[1][1].by_line


def _steps(records: list[Any]) -> list[str]:
    """What happened in which order, addresses of memory aside."""
    kept = ("Issue", "AsyncBegin", "AsyncEnd")
    return [f"{type(r).__name__} {getattr(r, 'who', None)} {getattr(r, 'index', getattr(r, 'operation', None))}"
            for r in records if type(r).__name__ in kept]  # fmt: skip


def test_faults_show_under_some_seeds_only() -> None:
    for body, seed, verdict in ((GIVEN_EARLY, EARLY_SEED, "wrong"), (ONE_WAITS, HANGING_SEED, "hang")):
        assert [outcome(body, policy=policy)[0] for policy in ("in_order", "latest")] == ["right", "right"]
        assert outcome(body, policy="random", seed=0)[0] == "right"
        assert outcome(body, policy="random", seed=seed)[0] == verdict


def test_in_order_decides_nothing_and_an_empty_schedule_is_in_order() -> None:
    out, launch = run(RIGHT)
    assert launch.schedule is None
    _, late = run(RIGHT, policy="latest")
    assert late.schedule is not None and len(late.schedule.decisions) == 6
    assert all(isinstance(d, Hold) and d.until == "stuck" for d in late.schedule.decisions)
    seen: list[Any] = []
    plain: list[Any] = []
    run(RIGHT, listeners=[plain.append])
    again, _ = run(RIGHT, policy="replay", schedule=replace(late.schedule, decisions=()), listeners=[seen.append])
    assert (again == out).all() and _steps(seen) == _steps(plain)
    assert not any(isinstance(r, Turns) for r in plain)


def test_resting_is_no_deadlock() -> None:
    """Whatever a schedule says: a warp that may go on does so when nothing else happens."""
    _, schedule = outcome(RIGHT, policy="random", seed=0)
    for warps in ((0,), (1, 2), (0, 1, 2)):
        rests = tuple(Slice(ORIGIN, number, warp, 0) for number in range(1, 300) for warp in warps)
        for engine in ENGINES:
            held = replace(schedule, decisions=rests)
            assert outcome(RIGHT, policy="replay", schedule=held, engine=engine)[0] == "right"


def test_decisions_about_what_never_happens_are_ignored() -> None:
    _, schedule = outcome(RIGHT, policy="random", seed=0)
    strange: tuple[Decision, ...] = (
        Hold(ORIGIN, 0, 99), Hold((7, 0, 0), 0, 0), First(ORIGIN, 1, 99), First(ORIGIN, 1, 2), Slice(ORIGIN, 999, 0, 0),
        Slice(ORIGIN, 2, 99, 5),
    )  # fmt: skip
    assert outcome(RIGHT, policy="replay", schedule=replace(schedule, decisions=strange))[0] == "right"


# ---------------------------------------------------------------- files
@pytest.fixture(scope="module")
def schedule() -> Schedule:
    found = outcome(GIVEN_EARLY, policy="random", seed=EARLY_SEED)[1]
    assert isinstance(found, Schedule) and len(found.decisions) > 10
    return found


def test_a_file_holds_what_was_saved(schedule: Schedule, tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    save(file, [schedule, replace(schedule, decisions=())])
    assert load(file) == (schedule, replace(schedule, decisions=()))
    assert loads(dumps([])) == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["schedule.json"]


def _changed(schedule: Schedule, change: Any) -> str:
    raw = json.loads(dumps([schedule]))
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.update(version=0), "version 0; version 1 is read"),
        (lambda raw: raw.pop("version"), "version None; version 1 is read"),
        (lambda raw: raw.update(format="trace"), 'no schedule: "format" must be'),
        (lambda raw: raw["launches"][0]["decisions"].pop(), "cut off: "),
        (lambda raw: raw["launches"][0].pop("ptx"), "no schedule (KeyError: 'ptx')"),
        (lambda raw: raw["launches"][0]["decisions"][0].__setitem__(0, "wait"), "no schedule (KeyError: 'wait')"),
        (lambda raw: raw["launches"][0].update(decisions=[["hold", [0, 0, 0], 0, 0, "soon", 0]], count=1), "'soon'"),
        (lambda raw: raw["launches"][0].update(decisions=[["first", [0, 0, 0], -1, 0]], count=1), "whole numbers"),
        (lambda raw: raw["launches"][0].update(decisions=[["first", [0, 0], 1, 0]], count=1), "no schedule ("),
        (lambda raw: raw["launches"][0].update(grid=[1, 1, "1"]), "three whole numbers"),
        (lambda raw: raw.update(launches=3), "no schedule ("),
    ],
)
def test_old_and_broken_files_are_refused(schedule: Schedule, change: Any, words: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        loads(_changed(schedule, change), "file x")
    assert str(refused.value).startswith("file x: ") and words in str(refused.value)


def test_every_truncation_is_refused(schedule: Schedule) -> None:
    text = dumps([schedule]).rstrip()
    for end in range(0, len(text), 37):
        with pytest.raises(ScheduleError, match="cut off"):
            loads(text[:end])
    assert loads(text) == (schedule,)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"gone\.json: cannot be read"):
        load(tmp_path / "gone.json")


def test_the_schedule_of_another_launch_is_refused_before_it_runs(schedule: Schedule) -> None:
    with pytest.raises(ScheduleError, match="recorded for kernel kernel of PTX .*; this is kernel of PTX"):
        run(RIGHT, policy="replay", schedule=schedule)
    with pytest.raises(ScheduleError, match=r"recorded for grid \(2, 1, 1\); this launch has \(1, 1, 1\)"):
        run(GIVEN_EARLY, policy="replay", schedule=replace(schedule, grid=(2, 1, 1)))
    with pytest.raises(LaunchError, match="`replay`, and only it, takes a schedule"):
        run(GIVEN_EARLY, policy="replay")
    with pytest.raises(LaunchError, match="`replay`, and only it, takes a schedule"):
        run(GIVEN_EARLY, policy="latest", schedule=schedule)


# ---------------------------------------------------------------- shrinking, telling
@pytest.mark.parametrize(("body", "seed", "verdict"), [(GIVEN_EARLY, 4, "wrong"), (ONE_WAITS, 3, "hang"),
                                                       (GIVEN_EARLY, 15, "wrong")])  # fmt: skip
def test_shrinking_leaves_what_matters(body: str, seed: int, verdict: str) -> None:
    _, schedule = outcome(body, policy="random", seed=seed)

    def shows(schedules: tuple[Schedule, ...]) -> bool:
        return outcome(body, policy="replay", schedule=schedules[0])[0] == verdict

    small = shrink([schedule], shows)
    assert small.minimal and small.count <= 3 and shows(small.schedules) and 0 < small.runs <= 400
    (left,) = small.schedules
    for n in range(small.count):
        fewer = replace(left, decisions=left.decisions[:n] + left.decisions[n + 1 :])
        assert not shows((fewer,))


def test_shrinking_of_several_launches_and_its_bounds(schedule: Schedule) -> None:
    decisions = tuple(First(ORIGIN, number, 1) for number in range(1, 65))
    given = [replace(schedule, decisions=decisions), replace(schedule, decisions=decisions)]
    wanted = {(0, 7), (1, 9), (1, 60)}

    def shows(schedules: tuple[Schedule, ...]) -> bool:
        return wanted <= {(n, d.round) for n, s in enumerate(schedules) for d in s.decisions if isinstance(d, First)}

    small = shrink(given, shows)
    assert {(n, d.round) for n, s in enumerate(small.schedules) for d in s.decisions if isinstance(d, First)} == wanted
    few = shrink(given, shows, runs=12)
    assert not few.minimal and few.runs == 12 and few.count < 128 and shows(few.schedules)
    assert shrink(given, shows, seconds=0).count == 128


def test_the_story_names_who_and_where() -> None:
    told = Story([_of(RIGHT, Hold(ORIGIN, 0, 1), First(ORIGIN, 1, 2), Slice(ORIGIN, 3, 1, 0), Slice(ORIGIN, 4, 1, 0),
                      Slice(ORIGIN, 3, 2, 2))])  # fmt: skip
    run(RIGHT, policy="replay", schedule=told._schedules[0], listeners=[told])
    first, held, rest, stop = told.lines
    assert first == "round 1: warp 2 (not begun) runs first, before warp 0 (not begun), warp 1 (not begun)"
    assert held.startswith("bulk operation #2 of warp 0 (bulk copy of 2048 bytes to 0xc00; PTX line ")
    assert ":23) completes only when nobody can go on without it; meanwhile warp 2 to PTX line" in held
    assert rest.startswith("rounds 3 to 4: warp 1 (at PTX line ") and rest.endswith(":30) rests")
    assert stop.startswith("round 3: warp 2 (at PTX line ") and "is stopped after 2 blocks, behind PTX line " in stop


def _of(body: str, *decisions: Decision) -> Schedule:
    _, launch = run(body, policy="latest")
    assert launch.schedule is not None
    return replace(launch.schedule, decisions=decisions)


def test_several_ctas_are_told_apart() -> None:
    out = np.zeros(64, np.uint32)
    body = MY_WORD + "st.global.u32 [%rd30], %r1; ret;"
    arena = Arena(out=out)
    record = arena.run(body, grid=2, block=32, policy="random", seed=1)
    schedule = replace(record.schedule, decisions=(First((1, 0, 0), 1, 0),))
    told = Story([schedule])
    arena.run(body, grid=2, block=32, policy="replay", schedule=schedule, listeners=[told])
    assert told.lines == ["round 1: warp 0 of CTA (1, 0, 0) (not begun) runs first"]
    assert emulator.Schedule is Schedule
