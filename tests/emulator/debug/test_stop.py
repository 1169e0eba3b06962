"""What can be seen while a launch stands still."""

from __future__ import annotations

import numpy as np
import pytest

from emulator import debug, views
from emulator.debug import BadBreakpoint, Debugger
from emulator.views import ViewError
from tests.emulator.machine import pipeline
from tests.emulator.machine.arena import Arena
from tests.emulator.views.samples import NAMES, fold, tensor

BODY = """
mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; mul.f32 %f2, %f1, 0f3F000000; setp.gt.u32 %p1, %r1, 7;
mov.b32 %r2, %f2; cvt.rn.f16x2.f32 %r3, %f1, %f2; mov.b64 %rd5, {%r1, %r2}; cvt.u16.u32 %rs1, %r1; neg.s32 %r6, %r1;
{ .reg .b32 %inner; mov.u32 %inner, 7; add.u32 %r7, %inner, %r1; }
{ .reg .b32 %inner; mov.u32 %inner, 9; add.u32 %r8, %inner, %r1; }
ret;
"""


def look(point, ask, run=fold, **names):
    """What `ask` gives at a point."""
    found = []
    run(Debugger(point, lambda stop: found.append(ask(stop)), **{**NAMES, **names}))
    return found[0]


def registers(ask, opcode="ret", text=""):
    """What `ask` gives before the instruction of this opcode that holds this text, in a kernel of one warp."""
    found = []

    def at(stop):
        if stop.instruction.opcode.startswith(opcode) and text in stop.instruction.text:
            found.append(ask(stop))
            return None
        return debug.Step()

    Arena().run(BODY, listeners=[Debugger(debug.instruction(0), at)])
    return found[0]


def test_registers_by_name_in_their_types():
    lane = np.arange(32)
    values = registers(lambda s: {n: s.register(n) for n in ("%r1", "%f2", "%p1", "%r2", "%rd5", "%rs1", "%r6")})
    np.testing.assert_array_equal(values["%r1"], lane.astype(np.uint32))
    np.testing.assert_array_equal(values["%f2"], (lane / 2).astype(np.float32))
    np.testing.assert_array_equal(values["%p1"], lane > 7)
    np.testing.assert_array_equal(values["%r2"].view(np.float32), (lane / 2).astype(np.float32))
    assert values["%rd5"].dtype == np.uint64 and int(values["%rd5"][4]) == 0x40000000 << 32 | 4
    assert values["%rs1"].dtype == np.uint16


def test_bits_can_be_read_as_another_type():
    def ask(s):
        return (
            s.register("%r2", 6, "f32"),
            s.register("%r6", 3, "s32"),
            s.register("%r3", 8, "f16"),
            s.register("%rd5", 2, "u32"),
        )

    single, signed, pair, halves = registers(ask)
    assert (float(single), int(signed)) == (3.0, -3)
    # cvt puts its first source into the upper half.
    assert pair.tolist() == [4.0, 8.0] and halves.tolist() == [2, 0x3F800000]


def test_names_that_inline_assembly_uses_again_mean_the_one_at_hand():
    first = registers(lambda s: int(s.register("%inner", 0)), "add.u32", "%r7")
    second = registers(lambda s: int(s.register("%inner", 0)), "add.u32", "%r8")
    assert (first, second) == (7, 9)
    assert registers(lambda s: [int(s.register(n, 0)) for n in ("%inner", "%inner$2")]) == [7, 9]


def test_what_the_instruction_names_in_the_types_of_its_opcode():
    given = registers(lambda s: s.registers(9), "cvt.rn.f16x2")
    assert float(given["%f1"]) == 9.0 and float(given["%f2"]) == 4.5 and given["%r3"].dtype == np.float16


def test_wrong_registers_lanes_and_types_are_refused():
    def ask(s):
        said = []
        for arguments in (
            ("%q1",),
            ("%r1000",),
            ("%r1", 32),
            ("%r1", 0, "f64"),
            ("%r1", 0, "f31"),
            ("%r1", 0, None, 1),
        ):
            with pytest.raises((BadBreakpoint, ViewError)) as raised:
                s.register(*arguments)
            said.append(str(raised.value))
        return said

    said = registers(ask)
    assert "no register '%q1'; it has " in said[0] and "it has %r0 .. %r59 (60)" in said[1]
    assert "lane=32; allowed: 0..31" in said[2] and "a register of 32 bits" in said[3]
    assert "dtype='f31'; allowed: " in said[4] and "warp=1; allowed: 0..0" in said[5]


def test_shared_memory_by_variable_offset_and_layout():
    def ask(s):
        by_name = s.shared("tile", (16, 32))
        by_layout = s.shared("tile", ((4, 4), 32), ((32, 128), 1))
        return by_name, by_layout, s.shared("tile", (2, 4), (4, 1), "u8")

    tile, nested, raw = look(debug.barrier("p.full[0]"), ask)
    np.testing.assert_array_equal(tile, pipeline.words()[0])
    np.testing.assert_array_equal(nested, tile)
    np.testing.assert_array_equal(raw, tile.ravel()[:2].view(np.uint8).reshape(2, 4))


def test_shared_memory_refusals():
    def ask(s):
        said = []
        for arguments in (("nothing", 4), ("tile", 1 << 20), (-4, 1), ("tile", (2,), (1, 2)), ("tile", 4, None, "f31")):
            with pytest.raises((BadBreakpoint, ViewError)) as raised:
                s.shared(*arguments)
            said.append(str(raised.value))
        with pytest.raises(BadBreakpoint, match="rank=1; the cluster has CTAs 0..0"):
            s.shared("tile", 4, rank=1)
        return said

    said = look(debug.barrier("p.full[0]"), ask)
    assert "no shared variable 'nothing'; variables: tile, full, empty" in said[0]
    assert "the CTA has " in said[1] and "bytes -4..-1" in said[2] and "has 1 modes" in said[3]


def test_tensor_memory_by_field_and_columns():
    def ask(s):
        with pytest.raises(BadBreakpoint, match="column=510, columns=4"):
            s.tensor(column=510, columns=4)
        with pytest.raises(ViewError, match="no tensor-memory field 'z'; fields: a"):
            s.tensor("z")
        return s.tensor("a"), s.tensor(column=1, columns=2, dtype="u32", lanes=slice(4, 6)), views.tmem_map(s).text()

    fields = {"a": (0, 4, "u32")}
    names = {"fields": fields, "barriers": None}
    field, part, text = look(debug.python("pipe.py:12").of(warp=1), ask, tensor, **names)
    np.testing.assert_array_equal(field, np.arange(512).reshape(128, 4))
    assert part.tolist() == [[17, 18], [21, 22]]
    assert "where it stands" in text and "0..511" in text


def test_global_tensors_by_name():
    def ask(s):
        with pytest.raises(BadBreakpoint, match="no tensor 'x'; tensors: "):
            s.global_tensor("x")
        with pytest.raises(BadBreakpoint, match=r"shape=\(5,\)\): the tensor spans 64 u32 elements"):
            s.global_tensor("out", (5,))
        return s.global_tensor("source"), s.global_tensor("out", (64,))

    source, out = look(debug.barrier("p.full[0]"), ask)
    np.testing.assert_array_equal(source, pipeline.words())
    assert source.dtype == np.uint32 and not out.any()


def test_arrays_are_copies():
    def ask(s):
        s.shared("tile", (16, 32))[:] = 0
        s.register("%r1")[:] = 0
        s.global_tensor("source")[:] = 0

    found = []
    fold(Debugger(debug.barrier("p.full[0]"), lambda s: found.append(ask(s)), **NAMES))
    out, _ = fold()
    np.testing.assert_array_equal(out, pipeline.expected())


def test_where_everybody_is():
    warps, barriers, text = look(debug.barrier("p.full[0]"), lambda s: (s.warps(), s.barriers(), s.text()))
    lines = dict(line.split(": ", 1) for line in warps.splitlines())
    assert lines["load (0)"].endswith("here") and "waits for barrier 0: 64 of 96" in lines["fold (1)"]
    assert barriers.splitlines()[0].startswith("p.full[0]: mbarrier 0x") and len(barriers.splitlines()) == 4
    assert "completion of mbarrier p.full[0]" in text and "load (0), 1 lane" in text and "pipe.py:23" in text


def test_every_view_takes_a_stop():
    def ask(s):
        return [view(s).text() for view in (views.timeline, views.stages, views.hot_lines)]

    texts = look(debug.python("pipe.py:30").of(warp=1, times=3), ask)
    assert all("kernel" in text for text in texts) and "being read" in texts[1]
