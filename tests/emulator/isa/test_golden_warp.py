"""shfl, vote, match, redux, elect, activemask against words captured on an H200, and what the capture cannot show."""

from __future__ import annotations

import re

import numpy as np
import pytest

from emulator.builders.lanes import FULL
from tests.emulator.isa import captured
from tests.emulator.isa.harness import BLOCKED, Code, Lanes

_REGISTERS = {"p": "pred", "q": "pred", "s": "pred", "w": "b64"} | {n: "b32" for n in "lijmabcdet"}
_NOT_EXECUTING = np.uint32(0xDEADBEEF)
SPECS = [(name, source) for name, source in captured.table("warp/specs") if not name.startswith("lanemask")]


def _body(name: str) -> str:
    kernel = {row[0]: row[1] for row in captured.table("launch/warp")}[name]
    text = bytes(captured.member("ptx/warp")).decode()
    return re.search(rf"\.entry {kernel}\(.*?@q bra SK;\n(.*?)\nSK:", text, re.S)[1]  # type: ignore[index]


def _lanes(word: int) -> np.ndarray:
    return FULL if word == 0xFFFFFFFF else (word >> np.arange(32) & 1).astype(np.bool_)


@pytest.mark.parametrize(("name", "source"), SPECS, ids=[name for name, _ in SPECS])
def test_captured_warp_words(name: str, source: str) -> None:
    """48 cases each: random operands, member masks from one lane to all; lanes outside the mask do not execute."""
    body, want = _body(name), captured.member(f"warp/out/{name}")
    whole, part = Code(body, _REGISTERS), Code(body, _REGISTERS, masked=True)
    for case, word in enumerate(captured.member("warp/in/mask").tolist()):
        mask = _lanes(word)
        code = whole if mask is FULL else part
        after = code(
            mask,
            a=captured.member(f"warp/in/{source}")[case],
            b=captured.member("warp/in/b")[case],
            c=captured.member("warp/in/c")[case],
            m=np.full(32, word, np.uint32),
            d=np.full(32, _NOT_EXECUTING),
            e=np.full(32, _NOT_EXECUTING),
        )
        assert (after["d"] == want[case, :, 0]).all(), (case, hex(word))
        assert (after["e"] == want[case, :, 1]).all(), (case, hex(word))


def test_two_sets_of_lanes_exchange_in_one_instruction() -> None:
    """Halves of a warp that name their own half act by themselves; a lane that its mask does not name reads zero."""
    halves = np.repeat(np.array([0x0000FFFF, 0xFFFF0000], np.uint32), 16)
    halves[5] = 0x0000FFDF
    lane = np.arange(32, dtype=np.uint32)
    code = Code("redux.sync.add.u32 d,a,m; elect.sync e|p,m; vote.sync.ballot.b32 c,p,m;", _REGISTERS)
    after = code(a=lane, m=halves)
    # lanes 0..15 but 5 name all sixteen, lane 5 names the others without itself
    assert after["d"].tolist() == [115] * 5 + [0] + [115] * 10 + [sum(range(16, 32))] * 16
    assert np.flatnonzero(after["p"]).tolist() == [0, 16]
    assert after["c"].tolist() == [1] * 5 + [0] + [1] * 10 + [1 << 16] * 16


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_literal_operands_equal_register_operands(mode: str) -> None:
    """The precomputed lanes of literal operands are those of registers."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
    for b in (0, 1, 7, 16, 31, 33):
        for c in (0, 31, 0x1F00, 0x181F, 0x100F):
            literal = Code(f"shfl.sync.{mode}.b32 d|p,a,{b},{c},-1;", _REGISTERS)(a=a)
            register = Code(f"shfl.sync.{mode}.b32 d|p,a,b,c,m;", _REGISTERS)(
                a=a, b=np.full(32, b, np.uint32), c=np.full(32, c, np.uint32), m=np.full(32, 0xFFFFFFFF, np.uint32)
            )
            assert (literal["d"] == register["d"]).all() and (literal["p"] == register["p"]).all()


def test_a_warp_that_is_not_all_here_waits() -> None:
    """Every operation that names members answers that the warp waits, and writes nothing."""
    for body in (
        "shfl.sync.idx.b32 d,a,0,31,-1;",
        "shfl.sync.idx.b32 d,a,b,31,m;",
        "vote.sync.ballot.b32 d,s,-1;",
        "vote.sync.any.pred p,s,-1;",
        "match.any.sync.b32 d,a,-1;",
        "redux.sync.add.u32 d,a,-1;",
        "redux.sync.max.NaN.f32 d,a,-1;",
        "elect.sync d|p,-1;",
    ):
        code = Code(body, _REGISTERS)
        after = code(warp=Lanes(here=False), a=np.arange(32, dtype=np.uint32))
        assert code.result == BLOCKED and not after["d"].any() and not after["p"].any()


def test_guarded_lanes_only() -> None:
    """Under a guard only its lanes take part; with no lane left nothing is asked of the warp."""
    first = np.arange(32) < 3
    code = Code("@q elect.sync d|p,-1; @q activemask.b32 e;", _REGISTERS)
    after = code(q=~first)
    assert np.flatnonzero(after["p"]).tolist() == [3] and after["d"].tolist() == [0] * 3 + [3] * 29
    assert after["e"].tolist() == [0] * 3 + [0xFFFFFFF8] * 29
    assert not code(warp=Lanes(here=False), q=np.zeros(32, np.bool_))["p"].any()


def _floats(*values: float) -> np.ndarray:
    return np.resize(np.array(values, np.float32), 32).view(np.uint32)


@pytest.mark.parametrize(
    ("op", "values", "want"),
    [
        ("min", (3.0, -2.0, 7.5), -2.0),
        ("max", (3.0, -2.0, 7.5), 7.5),
        ("max.abs", (3.0, -9.0, 7.5), 9.0),
        ("min.abs", (-3.0, -9.0, 7.5), 3.0),
        ("max", (np.nan, -np.inf, -4.0), -4.0),
        ("min", (-0.0, 0.0), -0.0),
        ("max", (-0.0, 0.0), 0.0),
    ],
)
def test_redux_f32(op: str, values: tuple[float, ...], want: float) -> None:
    """Float reductions (sm_100a; PTX ISA 9.7.13.12): NaN loses, -0 is below +0, .abs takes magnitudes."""
    after = Code(f"redux.sync.{op}.f32 d,a,-1;", _REGISTERS)(a=_floats(*values))
    assert (after["d"] == np.float32(want).view(np.uint32)).all()


def test_redux_f32_nan() -> None:
    """.NaN lets one NaN win; without it NaN appears only if every lane has one. Both are canonical."""
    some = _floats(1.0, 2.0)
    some[9] = 0xFFC12345
    assert (Code("redux.sync.min.NaN.f32 d,a,-1;", _REGISTERS)(a=some)["d"] == 0x7FFFFFFF).all()
    assert (Code("redux.sync.min.f32 d,a,-1;", _REGISTERS)(a=some)["d"] == 0x3F800000).all()
    every = np.full(32, 0xFFC12345, np.uint32)
    assert (Code("redux.sync.max.abs.f32 d,a,-1;", _REGISTERS)(a=every)["d"] == 0x7FFFFFFF).all()
