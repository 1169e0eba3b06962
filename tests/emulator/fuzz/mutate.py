"""Mutations of PTX texts and of their launches: by token, by statement, by whole instructions of the opcode table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

from emulator.isa import forms
from tests.emulator.fuzz.seeds import Seed, captured, written
from tests.emulator.fuzz.watch import Case

NUMBERS = (
    "0 1 -1 2 3 4 5 7 8 15 16 17 31 32 33 48 63 64 100 127 128 255 256 512 1000 1023 1024 4096 65535 65536 1048575 "
    "1048576 -128 -2147483648 0x7fffff00 0x80000000 0xffffffff 4294967296 0x4000000000000 0x7fffffffffffffff "
    "0xffffffffffffff00 1.5 0f7FC00000 0fFF800000 0d7FF0000000000000"
).split()
FLOATS = 4
"""How many of them, at the end, are floating-point literals."""

TYPES = (
    "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 f32x2 pred tf32 e4m3x2 e5m2x2 "
    "v2 v4 v8"
).split()
OPERANDS = (
    *"%r1 %r5 %r4 %r3 %r8 %r2 %rd1 %rd2 %rd3 %rd4 %rd5 %h1 %f1 %d1 %p1 !%p1 %q1 _ %r5|%p2 %p2|%p3".split(),
    *"%tid.x %clock64 %lanemask_lt %laneid %envreg3 WARP_SZ tile bars stack map text".split(),
    *"[%r4] [%r3] [%rd1] [%rd2+16] [%r4+8192] [tile+64] [stack] [map] [%rd1+-8] [%r1] [0] [-1] [table] [%rd5]".split(),
    "[%rd3, {0, 1}]",
    "[%rd3, {%r5, %r1, 0}]",
    "{%r5}",
    "{%r5, %r6}",
    "{_, %r5}",
    "{%h1, %h2}",
    "{%rd5, %rd6}",
    "{0, 0, 0, 0}",
    "{%r5, %r6, %r7, %r8}",
    "{%f1, %f2, %f3, %f4}",
    "{%r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12}",
)
_REGISTER = re.compile(r"%[a-z]+\d+|\b[a-z]\d*\b(?=[,;\]}])")
_NUMBER = re.compile(r"(?<![\w.%$])-?(?:0x[0-9a-fA-F]+|\d+)\b(?!\.)")
_MODIFIER = re.compile(r"\.[a-zA-Z][\w:]*")

Edit = Callable[[Random, list[str]], None]


def statements(text: str) -> tuple[list[str], list[str]]:
    """(what stands in front of the last kernel's body, its statements)."""
    start = text.rindex(".entry")
    start = text.index("{", text.index(")", start)) + 1
    pieces = re.split(r"(?<=[;])", text[start:])
    return [text[:start]], pieces


@cache
def _common_names(text: str) -> str:
    """A captured kernel with the registers of the other ones declared besides its own, so that every edit fits."""
    head, body = statements(text)
    declared = " .reg .pred %p<12>; .reg .b16 %h<12>; .reg .b32 %r<40>; .reg .b64 %rd<24>; .reg .f32 %f<12>;"
    declared += " .reg .f64 %d<6>; .reg .b128 %q<4>; .shared .align 1024 .b8 tile[1024]; .shared .align 8 .b8 bars[64];"
    return "".join([*head, declared, " mov.u32 %r1, %tid.x; mov.u32 %r3, bars; mov.u32 %r4, tile;", *body])


def _one(random: Random, pattern: re.Pattern[str], text: str, new: Callable[[str], str]) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    m = random.choice(found)
    return text[: m.start()] + new(m.group()) + text[m.end() :]


def _pick(random: Random, body: list[str]) -> int:
    return random.randrange(len(body))


def _swap_register(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    others = _REGISTER.findall(" ".join(random.choices(body, k=6))) or ["%r1"]
    body[k] = _one(random, _REGISTER, body[k], lambda _: random.choice(others))


def _change_number(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    body[k] = _one(random, _NUMBER, body[k], lambda old: random.choice((*NUMBERS, f"{old}1", old[:-1] or "9")))


def _number_for_operand(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    body[k] = _one(random, _REGISTER, body[k], lambda _: random.choice(NUMBERS))


def _change_modifier(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    words = TYPES if random.random() < 0.5 else modifiers()
    body[k] = _one(random, _MODIFIER, body[k], lambda old: random.choice((f".{random.choice(words)}", "", old * 2)))


def _drop(random: Random, body: list[str]) -> None:
    del body[_pick(random, body)]


def _duplicate(random: Random, body: list[str]) -> None:
    body.insert(_pick(random, body), body[_pick(random, body)])


def _reorder(random: Random, body: list[str]) -> None:
    i, j = _pick(random, body), _pick(random, body)
    body[i], body[j] = body[j], body[i]


def _guard(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    m = re.match(r"(\s*(?:[\w$]+:\s*)?)(@!?%\w+ )?(\S.*)", body[k], re.S)
    if m and not m[3].startswith("."):
        body[k] = m[1] + ("" if m[2] else random.choice(("@%p1 ", "@!%p1 ", "@%p2 ", "@%r1 "))) + m[3]


def _operand(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    head, _, tail = body[k].partition(" ")
    places = [m.start() for m in re.finditer(r"[^\s,;]", tail)]
    if places:
        at = random.choice(places)
        end = re.compile(r"[,;]").search(tail, at)
        body[k] = f"{head} {tail[:at]}{random.choice(OPERANDS)}{tail[end.start() :] if end else ''}"


def _more_or_fewer(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    if random.random() < 0.5:
        body[k] = body[k].replace(";", f", {random.choice(OPERANDS)};", 1)
    else:
        body[k] = re.sub(r",[^,;]*;", ";", body[k], count=1)


def _instruction(random: Random, body: list[str]) -> None:
    body.insert(_pick(random, body), random_instruction(random))


def _punctuation(random: Random, body: list[str]) -> None:
    k = _pick(random, body)
    at = random.randrange(len(body[k]) + 1)
    body[k] = body[k][:at] + random.choice(list("{}[]();,:@!|%.")) + body[k][at + random.randrange(2) :]


def _value(random: Random, body: list[str]) -> None:
    """A register gets another value in front of an instruction that mentions it: wild addresses, sizes, descriptors."""
    k = _pick(random, body)
    found = re.findall(r"%(?:rd|r|h|f|d|p)\d+", body[k])
    m = re.match(r"(\s*(?:[\w$]+:\s*)*)(?=[@\w])", body[k])
    if not found or not m:
        return
    register = random.choice(found)
    type = next(t for name, t in _CLASSES if register.startswith(name))
    body[k] = f"{m[0]}{_assignment(random, register, type)} {body[k][m.end() :]}"


def _assignment(random: Random, register: str, type: str) -> str:
    value = random.choice(NUMBERS[: -FLOATS if random.random() < 0.9 else None])
    if type == "pred":
        return f"setp.lt.u32 {register}, %r1, {random.choice(('0', '1', '16', '32', '33'))};"
    if "f" in value or "d" in value or "." in value or type not in ("u32", "u64"):
        return f"mov.b{type[1:]} {register}, {value};"
    if type == "u32":
        how = random.choice(
            ("mov.u32 R, N;", "add.u32 R, R, N;", "xor.b32 R, R, N;", "mad.lo.u32 R, %r1, N, R;", "shl.b32 R, R, 3;")
        )
    else:
        how = random.choice(
            ("mov.u64 R, N;", "add.u64 R, R, N;", "xor.b64 R, R, N;", "mad.wide.u32 R, %r1, 12, R;", "shl.b64 R, R, 9;")
        )
    return how.replace("R", register).replace("N", value)


_CLASSES = (("%rd", "u64"), ("%r", "u32"), ("%h", "u16"), ("%f", "f32"), ("%d", "f64"), ("%p", "pred"))


def _other_form(random: Random, body: list[str]) -> None:
    """Another form of the same opcode on the same operands."""
    k = _pick(random, body)
    m = re.match(r"(\s*(?:[\w$]+:\s*)*(?:@!?%\w+\s+)?)([a-z]\w*)(\.[\w.:]+)?(?=[\s;])", body[k])
    if m:
        family = [f.pattern for f in forms() if re.match(r"\w+", f.pattern)[0] == m[2]]  # type: ignore[index]
        alike = [p for p in family if p.split(".")[:2] == (m[2] + (m[3] or "")).split(".")[:2]]
        if family:
            body[k] = m[1] + opcode(random, random.choice(alike or family)) + body[k][m.end() :]


EDITS: dict[Edit, int] = {
    _swap_register: 6,
    _change_number: 8,
    _number_for_operand: 3,
    _change_modifier: 6,
    _drop: 4,
    _duplicate: 3,
    _reorder: 3,
    _guard: 2,
    _operand: 4,
    _more_or_fewer: 1,
    _instruction: 4,
    _punctuation: 1,
    _value: 16,
    _other_form: 8,
}
"""Edits of a body and how often each is chosen."""


@cache
def modifiers() -> list[str]:
    """Every modifier that some form names."""
    words: set[str] = set()
    for form in forms():
        for part in re.findall(r"\.([\w:|]+)", form.pattern):
            words.update(re.sub(r"^\w+:(?!:)", "", part).split("|"))
    return sorted(w for w in words if w)


def opcode(random: Random, pattern: str) -> str:
    """An opcode that a form accepts."""

    def chosen(match: re.Match[str]) -> str:
        optional, body = match.group().startswith("["), match.group().strip("[].")
        if optional and random.random() < 0.6:
            return ""
        choice = re.fullmatch(r"[a-z_]\w*:(?!:)(.+)", body)
        return "." + (random.choice(choice[1].split("|")) if choice else body)

    return re.sub(r"\[\.[^\]]*\]|\.[^.\[]+", chosen, pattern)


def random_instruction(random: Random) -> str:
    """An instruction of the table with random operands, often of the kinds that fit."""
    name = opcode(random, random.choice(forms()).pattern)
    count = random.choice((0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6))
    guard = random.choice(("", "", "", "@%p1 ", "@!%p2 "))
    operands = [random.choice(OPERANDS if random.random() < 0.8 else NUMBERS) for _ in range(count)]
    return f"\n{guard}{name} {', '.join(operands)};"


def _head(random: Random, head: str) -> str:
    """A change of the declarations."""
    if random.random() < 0.5:
        return _one(random, _NUMBER, head, lambda old: random.choice((*NUMBERS, f"{old}1")))
    return _one(random, _MODIFIER, head, lambda _: f".{random.choice(TYPES)}")


def mutated(number: int) -> Case:
    """Case `number`: always the same one."""
    random = Random(number)
    seed = random.choice(written() if random.random() < 0.75 else captured())
    head, body = statements(seed.text if seed.given is None else _common_names(seed.text))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        if random.random() < 0.06:
            head = [_head(random, head[0])]
        elif body:
            random.choices(list(EDITS), EDITS.values())[0](random, body)
    return _launch(random, replace(seed, text="".join([*head, *body])))


def _launch(random: Random, seed: Seed) -> Case:
    case = Case(seed, policy=random.choice(("in_order", "in_order", "latest", "random")))
    case = replace(case, arithmetic=random.choice(("fast", "fast", "exact")), number=random.choice((0, 1, 1, 1, 7)))
    if random.random() < 0.15 and "map" in seed.text:
        flips = [(random.randrange(16), 1 << random.randrange(32)) for _ in range(random.choice((1, 1, 2, 8)))]
        case = replace(case, flips=tuple(flips))
    if random.random() < 0.08:
        change = random.choice(
            (
                {"block": random.choice((1, 31, 33, 64, 128, 256, 1024, 1025, 0))},
                {"cluster": random.choice((1, 2, 3, 4, 16, 17))},
                {"grid": random.choice((1, 2, 3, 0))},
            )
        )
        case = replace(case, seed=replace(seed, **change))
    if random.random() < 0.03:
        case = replace(case, shared_bytes=random.choice((0, 16, 100_000, 300_000, -1, 1 << 40)))
    if random.random() < 0.01:
        case = replace(case, drop=1)
    if random.random() < 0.1:
        case = replace(case, watched=True)
    return case
