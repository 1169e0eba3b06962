"""Cases of atom and red: every operation and type, on special patterns, in global and shared memory."""

from __future__ import annotations

from tests.emulator.hw.case import Case, In, Out
from tests.emulator.hw.clusters import SHARED, START
from tests.emulator.hw.copies import pairs

FORMS = {
    "add": "u32 s32 u64 f32 f64 f16 bf16 f16x2 bf16x2",
    "min": "u32 s32 u64 s64",
    "max": "u32 s32 u64 s64",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "inc": "u32",
    "dec": "u32",
    "exch": "b32 b64",
    "cas": "b16 b32 b64",
}
VECTORS = (
    ("add", "v2", "f32"),
    ("add", "v4", "f32"),
    ("add", "v2", "f16x2"),
    ("add", "v4", "bf16x2"),
    ("add", "v8", "f16"),
    ("min", "v4", "f16"),
    ("max", "v4", "bf16"),
    ("max", "v2", "f16x2"),
    ("min", "v4", "bf16x2"),
)
ROUNDS = 4
"""Elements of each lane."""


def _width(type: str) -> int:
    return 2 if type in ("f16", "bf16") else 4 if "x2" in type else int(type[1:]) // 8


def _registers(width: int) -> str:
    return {2: "%h", 4: "%r1", 8: "%rd1"}[width]


def _scalar(name: str, type: str, space: str) -> Case:
    """Old values come back in one output, new ones in the other. For cas, every second element compares equal."""
    width = _width(type)
    count = 32 * ROUNDS
    a, b = pairs(
        2 if "16" in type and type != "b16" else width,
        count * width // (2 if "16" in type else width),
        len(name) + 3 * len(type),
    )
    r = _registers(width)
    noftz = ".noftz" if "f16" in type else ""
    move = "b" + str(8 * width)
    lines = []
    for k in range(ROUNDS):
        at = 32 * width * k
        compare = ""
        if name == "cas":
            compare = f"{r}1, " if k % 2 else f"{r}3, "
        target = f"[%rd5+{at}]" if space == "global" else f"[%r7+{at}]"
        if space == "shared":
            lines.append(f"ld.global.{move} {r}3, [%rd5+{at}]; st.shared.{move} {target}, {r}3;")
        lines.append(f"ld.global.{move} {r}1, [%rd6+{at}]; ld.global.{move} {r}3, [%rd5+{at}];")
        lines.append(
            f"atom.{space}.{name}{noftz}.{type} {r}2, {target}, {compare}{r}1; st.global.{move} [%rd7+{at}], {r}2;"
        )
        if space == "shared":
            lines.append(f"ld.shared.{move} {r}2, {target}; st.global.{move} [%rd5+{at}], {r}2;")
    body = f"""{START} ld.param.u64 %rd4, [p1]; ld.param.u64 %rd3, [p2]; mad.wide.u32 %rd5, %r1, {width}, %rd1;
mad.wide.u32 %rd6, %r1, {width}, %rd4;
mad.wide.u32 %rd7, %r1, {width}, %rd3; mad.lo.u32 %r7, %r1, {width}, %r5;
{chr(10).join(lines)} ret;"""
    nbytes = count * width
    return Case(f"atom {space} {name} {type}", body, (Out(nbytes, a), In(b), Out(nbytes)), before=SHARED)


def _vector(name: str, vector: str, type: str) -> Case:
    width, count = _width(type), int(vector[1:])
    a, b = pairs(4 if type == "f32" else 2, 32 * count * width // (4 if type == "f32" else 2), 11 * count + len(type))
    r = _registers(width)
    names = ", ".join(f"{r}{k}" for k in range(count))
    loads = "".join(f"ld.global.b{8 * width} {r}{k}, [%rd6+{width * k}];\n" for k in range(count))
    noftz = ".noftz" if "f16" in type else ""
    body = f"""{START} ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd5, %r1, {width * count}, %rd1;
mad.wide.u32 %rd6, %r1, {width * count}, %rd4;
{loads} red.global.{name}{noftz}.{vector}.{type} [%rd5], {{{names}}}; ret;"""
    return Case(f"red {name} {vector} {type}", body, (Out(32 * count * width, a), In(b)), before=SHARED)


CASES = [
    _scalar(name, type, space)
    for space in ("global", "shared")
    for name, types in FORMS.items()
    for type in types.split()
] + [_vector(*form) for form in VECTORS]
