"""Cases of tensor maps that a kernel changes: tensormap.replace field by field, and the use of what it made."""

from __future__ import annotations

from tests.emulator.hw.case import Case, In, Map, Out
from tests.emulator.hw.clusters import SHARED, START
from tests.emulator.hw.copies import SOURCE, blank, dump

REPLACED: tuple[tuple[str, int | None, int], ...] = (
    ("global_address", None, 0x7F0012345600),
    *(("rank", None, v) for v in (0, 1, 2, 3, 4)),
    *(("box_dim", o, v) for o, v in ((0, 1), (0, 64), (0, 256), (1, 256), (2, 3), (3, 129), (4, 255))),
    *(("global_dim", o, v) for o, v in ((0, 1), (0, 4096), (1, 0xFFFFFFFF), (2, 7), (3, 0x80000000), (4, 65537))),
    *(("global_stride", o, v) for o, v in ((0, 256), (0, 1 << 36), (1, (1 << 40) - 16), (2, 4096), (3, 0x123456780))),
    *(("element_stride", o, v) for o, v in ((0, 8), (1, 2), (2, 5), (3, 7), (4, 3), (0, 1))),
    *(("elemtype", None, v) for v in range(13)),
    *(("interleave_layout", None, v) for v in (1, 2, 0)),
    *(("swizzle_mode", None, v) for v in (0, 1, 2, 3)),
    *(("fill_mode", None, v) for v in (1, 0)),
)
"""(field, ordinal, value), one after the other on one map."""

ODD: tuple[tuple[str, int | None, int], ...] = (
    ("global_address", None, 0x7F0012345600),
    ("box_dim", 1, 0),
    ("box_dim", 1, 257),
    ("global_dim", 1, 0),
    ("element_stride", 1, 0),
    ("element_stride", 1, 9),
    ("global_stride", 0, 24),
    ("global_stride", 0, 1 << 40),
    ("global_stride", 0, 0xFFFFFFFFFFFFFFF0),
    ("rank", None, 5),
    ("rank", None, 8),
    ("global_address", None, 0xFFFFFFFFFFFFFFFF),
)
"""Values that PTX does not define: what the hardware writes for them is in the archive, the emulator refuses some."""

_TO_SHARED = "\n".join(
    f"ld.param.v4.b32 {{%r20, %r21, %r22, %r23}}, [p1+{o}]; "
    f"st.shared.v4.b32 [%r5+{8192 + o}], {{%r20, %r21, %r22, %r23}};"
    for o in range(0, 128, 16)
)
_WIDE = ("global_address", "global_stride")


def replace(field: str, ordinal: int | None, value: int, where: str = "[%r5+8192]") -> str:
    """One tensormap.replace with an immediate or, for 64-bit fields, a register."""
    place = f"{where}, " if ordinal is None else f"{where}, {ordinal}, "
    # The type of an elemtype, a layout or a mode must be an immediate.
    if field in _WIDE:
        return f"mov.u64 %rd20, {value}; tensormap.replace.tile.{field}.shared::cta.b1024.b64 {place}%rd20;"
    if field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode"):
        return f"tensormap.replace.tile.{field}.shared::cta.b1024.b32 {place}{value};"
    return f"mov.u32 %r30, {value}; tensormap.replace.tile.{field}.shared::cta.b1024.b32 {place}%r30;"


def _show(at: int) -> str:
    return "\n".join(
        f"ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r5+{8192 + o}]; "
        f"st.global.v4.b32 [%rd1+{at + o}], {{%r20, %r21, %r22, %r23}};"
        for o in range(0, 64, 16)
    )


def fields(name: str, steps: tuple[tuple[str, int | None, int], ...]) -> Case:
    """The 64 meaningful bytes of the map after every step."""
    shown = "\n".join(f"{replace(*step)}\n{_show(64 * k)}" for k, step in enumerate(steps))
    body = f"{START} @!%p1 ret; {_TO_SHARED}\n{shown} ret;"
    tmap = Map(2, "u32", (64, 64), (256,), (16, 8))
    return Case(name, body, (Out(64 * len(steps)), tmap, In(SOURCE)), before=SHARED)


_USED = Case(
    "a changed map is used",
    f"""{START} @%p1 mbarrier.init.shared.b64 [%r4], 1; {blank(1024)} {_TO_SHARED} bar.sync 0;
ld.param.u64 %rd5, [p3]; ld.param.u64 %rd6, [p4];
@!%p1 bra PUBLISH; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r5+8192], %rd5;
{replace("rank", None, 2)}
{replace("box_dim", 0, 8)} {replace("box_dim", 1, 6)} {replace("box_dim", 2, 3)} {replace("global_dim", 0, 30)}
{replace("global_dim", 1, 9)}
{replace("global_dim", 2, 5)} {replace("global_stride", 0, 128)} {replace("global_stride", 1, 2048)}
{replace("element_stride", 1, 2)} {replace("element_stride", 2, 1)}
{replace("elemtype", None, 7)} {replace("swizzle_mode", None, 1)} {replace("fill_mode", None, 1)}
PUBLISH: bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd6], [%r5+8192], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd6], 128; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 576;
@%p1 cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r5], [%rd6, {{0, 1, 1}}], [%r4];
@%p1 cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r5+1024], [%rd6, {{24, 5,
3}}], [%r4];
W: mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0; @!%p4 bra W; fence.proxy.async.shared::cta;
@%p1 cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd6, {{16, 4, 2}}], [%r5];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
bar.sync 0; {dump(1024)} ret;""",
    (Out(4096), Map(2, "u32", (64, 64), (256,), (16, 8)), In(SOURCE), Out(4 * 64 * 64, SOURCE ^ 0x00FF00FF), Out(128)),
    before=SHARED,
    loose={2: (0, 4, 64, 72)},
    note="another address, rank, type, box, strides and swizzle; clipped loads filled with NaN, and a store",
)
CASES = [fields("every field replaced", REPLACED), _USED]
ODDITIES = [fields("values outside their fields", ODD)]
