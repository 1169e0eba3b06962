"""The registers that operands name."""

from __future__ import annotations

import emulator
from emulator.ptx.module import Imm, Label, Sink
from emulator.ptx.registers import registers_of

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
BODY = """.entry k() { .reg .pred p, q; .reg .b32 a, b, c, d; .reg .b64 m;
ld.global.v4.b32 {a, b, _, 5}, [m+16]; shfl.sync.idx.b32 c|p, d, 0, 31, -1; selp.b32 a, b, 3, !q;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [m, {a, 7}], [b]; bra E; E: ret; }"""


def test_every_kind_of_operand() -> None:
    code = emulator.parse(HEADER + BODY.replace(", 5}", ", d}").replace("!q", "q")).functions["k"].instructions
    names = [[[r.name for r in registers_of(o)] for o in i.operands] for i in code]
    assert [sorted(x) for x in names[0]] == [["a", "b", "d"], ["m"]]
    assert [sorted(x) for x in names[1]] == [["c", "p"], ["d"], [], [], []]
    assert names[2] == [["a"], ["b"], [], ["q"]]
    assert [sorted(x) for x in names[3]] == [["a", "m"], ["b"]]
    assert registers_of(Imm(3, 0, "3")) == registers_of(Sink()) == registers_of(Label("E", 4)) == []
