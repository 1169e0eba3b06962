"""The opcode table: what real kernels use is accepted, everything else is refused, by name where it is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.isa import forms, lookup
from emulator.isa.table import refused


def test_every_opcode_of_real_kernels_is_accepted(data: Path) -> None:
    """The opcodes of 94 kernels of NVIDIA's CuTe DSL samples for sm_80, sm_90a and sm_100a."""
    opcodes = (data / "opcodes.txt").read_text().split()
    assert len(opcodes) == 341
    assert [o for o in opcodes if isinstance(lookup(o), str)] == []


def test_every_opcode_of_the_inventory_is_accepted(shared: Path) -> None:
    """The same for 96 samples, counted elsewhere, which adds those of mixed-precision attention."""
    text = (shared / "PTX_INVENTORY.md").read_text()
    opcodes = re.findall(r"^- `([\w.:]+)` x\d+$", text, re.M)
    assert len(opcodes) > 150
    assert [o for o in opcodes if isinstance(lookup(o), str)] == []


@pytest.mark.parametrize(
    ("opcode", "reason"),
    [
        ("tcgen05.mma.sp.cta_group::1.kind::f16", "published in figures only"),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::tf32.collector::b1::fill", "published in figures only"),
        ("tcgen05.shift.cta_group::2.down", "not documented"),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift", "not documented"),
        ("tcgen05.ld.red.sync.aligned.16x32bx2.x8.max.u32", "reduced together is not documented"),
        ("multimem.ld_reduce.relaxed.gpu.global.add.f32", "several GPUs"),
        ("multimem.cp.async.bulk.global.shared::cta.bulk_group", "several GPUs"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "layout of its fragments"),
        ("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32", "Volta"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32", "sm_120 only"),
        ("tex.2d.v4.f32.f32", "textures"),
        ("alloca.u64", "stack"),
        ("vadd4.u32.u32.u32.sat", "video instructions"),
        ("fma.rn.oob.relu.bf16x2", "has not been measured"),
        ("cvt.rs.f16x2.f32", "random bits"),
        ("atom.global.cas.b128", "not implemented"),
        ("atom.relaxed.gpu.global.add.v4.f32", "not implemented"),
        ("ldu.global.v4.f32", "ld.global.nc"),
        ("shfl.up.b32", "use .sync"),
        ("vote.all.pred", "use .sync"),
        ("red.async.release.sys.global.add.u32", "global memory has completed"),
        ("isspacep.global", "one range of addresses"),
        ("cvta.to.global.u32", "64 bits"),
    ],
)
def test_known_instructions_are_refused_with_a_reason(opcode: str, reason: str) -> None:
    found = lookup(opcode)
    assert isinstance(found, str) and found.startswith(f"`{opcode}` is not implemented: ") and reason in found


def test_every_refusal_refuses_something() -> None:
    """No pattern hides a form that exists, and each has a reason."""
    assert len(refused()) == 19
    for pattern, reason in refused():
        assert reason and not reason.endswith(".") and re.compile(pattern)


def test_unknown_opcodes_and_modifiers() -> None:
    assert lookup("frobnicate.u32") == "unknown opcode `frobnicate`"
    assert str(lookup("add.rn.f32.frob")).startswith("no implemented form of `add.rn.f32.frob`; implemented: add")
    assert isinstance(lookup("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.frob"), str)


def test_an_opcode_has_one_meaning(data: Path) -> None:
    """All forms that match a real opcode belong to one semantic function."""
    for opcode in (data / "opcodes.txt").read_text().split():
        family = [f for f in forms() if f.pattern.split(".")[0].split("[")[0] == opcode.split(".")[0]]
        assert len({f.build for f in family if f.regex.fullmatch(opcode)}) == 1, opcode
