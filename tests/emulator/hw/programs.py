"""Cases of what surrounds the arithmetic: printf, calls, variables of every space, indirect branches."""

from __future__ import annotations

from tests.emulator.hw.case import Case, In, Out
from tests.emulator.hw.clusters import SHARED, START
from tests.emulator.hw.copies import SOURCE


def _args(type: str, *bits: int) -> tuple[tuple[str, int], ...]:
    return tuple((type, b) for b in bits)


_ONE_AND_A_HALF, _PI, _ONE = 0x3FF8000000000000, 0x400921FB54442D18, 0x3FF0000000000000
PRINTED: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (
    ("plain text\n", ()),
    ("[%d] [%5d] [%-5d] [%05d] [%+d] [% d] [%i]\n", _args("u32", 7, -42, 42, 42, 42, 42, -1)),
    (
        "[%u] [%x] [%X] [%#x] [%o] [%#o] [%c] [%08x]\n",
        _args("u32", 0xFFFFFFFF, 48879, 48879, 255, 8, 8, 65, 0xBEEF),
    ),
    ("[%lld] [%llu] [%llx] [%ld] [%lu]\n", _args("u64", -5, (1 << 64) - 1, 1 << 40, -(1 << 40), 1 << 33)),
    (
        "[%f] [%.3f] [%10.4f] [%-10.2f] [%+.1f] [%.0f]\n",
        _args("f64", _ONE_AND_A_HALF, _PI, 0xC05EDD2F1A9FBE77, 0x4002666666666666, _ONE, 0x4004000000000000),
    ),
    (
        "[%e] [%E] [%g] [%G] [%.2e] [%g] [%g]\n",
        _args(
            "f64",
            _ONE_AND_A_HALF,
            0x7E37E43C8800759C,
            0x3EB0C6F7A0B5ED8D,
            0x7FEFFFFFFFFFFFFF,
            0x8000000000000000,
            0x4197D78400000000,
            _ONE,
        ),
    ),
    (
        "[%f] [%f] [%f] [%e] [%g]\n",
        _args("f64", 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 1, 0x7FF0000000000000),
    ),
    ("100%% [%s] [%10s] [%-10s] [%.3s]\n", _args("text", 0, 0, 0, 0)),
    ("[%hd] [%hu] [%hx] [%3c]\n", _args("u32", 70000, 70000, 0x12345, 66)),
    ("[%p]\n", _args("u64", 0x123456789A)),
    ("[%a] [%A] [%a]\n", _args("f64", _ONE_AND_A_HALF, _ONE, 0)),
    ("mixed %d %lld %f %d %s\n", (("u32", 1), ("u64", 2), ("f64", 0x4008000000000000), ("u32", 4), ("text", 0))),
)
"""(format, its arguments as a compiler packs them: a PTX type and the bits; `text` is the address of a word)."""


def _bytes(text: str) -> str:
    return ", ".join(str(b) for b in text.encode() + b"\0")


def _printf() -> Case:
    """Every format once from one thread, its answer stored; then one line from three lanes."""
    declared = [".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 args);"]
    declared.append(f".global .align 1 .b8 word[8] = {{{_bytes('kernels')}}};")
    calls = []
    for k, (text, values) in enumerate(PRINTED):
        declared.append(f".global .align 1 .b8 f{k}[{len(text.encode()) + 1}] = {{{_bytes(text)}}};")
        at = 0
        for type, bits in values:
            size = 4 if type == "u32" else 8
            at = -(-at // size) * size
            if type == "text":
                calls.append(f"mov.u64 %rd5, word; cvta.global.u64 %rd5, %rd5; st.local.u64 [stack+{at}], %rd5;")
            else:
                mask = (1 << 8 * size) - 1
                register = "%rd5" if size == 8 else "%r20"
                calls.append(
                    f"mov.b{8 * size} {register}, {bits & mask}; st.local.b{8 * size} [stack+{at}], {register};"
                )
            at += size
        calls.append(_call(f"f{k}") + f" st.global.u32 [%rd1+{4 * k}], %r21;")
    last = "lane %d\n"
    declared.append(f".global .align 1 .b8 last[{len(last) + 1}] = {{{_bytes(last)}}};")
    body = f"""{START} .local .align 16 .b8 stack[80]; @!%p1 bra SAID;
{chr(10).join(calls)}
SAID: bar.warp.sync 0xffffffff; setp.lt.u32 %p4, %r1, 3; @!%p4 bra END; st.local.u32 [stack], %r1;
{_call("last")} END: ret;"""
    return Case("printf", body, (Out(4 * len(PRINTED)),), before=SHARED + "\n".join(declared), prints=True)


def _call(format: str) -> str:
    return f"""mov.u64 %rd6, {format}; cvta.global.u64 %rd6, %rd6; mov.u64 %rd7, stack; cvta.local.u64 %rd7, %rd7;
{{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd6; st.param.b64 [b], %rd7;
call.uni (c), vprintf, (a, b); ld.param.b32 %r21, [c]; }}"""


_VARIABLES = Case(
    "variables",
    f"""{START} .local .align 16 .b8 stack[256]; .local .align 4 .b32 more[8];
{"mad.wide.u32 %rd2, %r1, 64, %rd1;"} and.b32 %r7, %r1, 7;
mov.u64 %rd5, powers; mad.wide.u32 %rd6, %r7, 4, %rd5; ld.const.f32 %f1, [%rd6]; st.global.f32 [%rd2], %f1;
cvta.const.u64 %rd6, %rd6; ld.f32 %f2, [%rd6];
st.global.f32 [%rd2+4], %f2; mov.u64 %rd7, numbers; mad.wide.u32 %rd8, %r7, 2, %rd7; ld.global.s16 %r8, [%rd8];
st.global.u32 [%rd2+8], %r8;
ld.global.u32 %r9, [counter]; st.global.u32 [%rd2+12], %r9; mov.u64 %rd9, stack; mad.wide.u32 %rd10, %r7, 4, %rd9;
mov.u32 %r10, 0;
FILL: mad.wide.u32 %rd11, %r10, 4, %rd9; mad.lo.u32 %r11, %r10, 1000, %r1; st.local.u32 [%rd11], %r11;
add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 32; @%p4 bra FILL;
ld.local.u32 %r12, [%rd10+32]; st.global.u32 [%rd2+16], %r12; cvta.local.u64 %rd12, %rd10; st.u32 [%rd12+8], 77;
ld.local.v2.u32 {{%r13, %r14}}, [stack+16];
st.global.v2.u32 [%rd2+24], {{%r13, %r14}}; isspacep.shared %p8, %rd12;
selp.u32 %r15, 8, 1, %p8; st.global.u32 [%rd2+32], %r15; ld.global.f64 %d1, [half]; st.global.f64 [%rd2+40], %d1;
ld.global.v2.f32 {{%f3, %f4}}, [pair];
st.global.v2.f32 [%rd2+48], {{%f3, %f4}}; ld.param.u32 %r19, [p1]; st.global.u32 [%rd2+56], %r19; ret;""",
    (Out(2048), -5),
    before=SHARED
    + """.const .align 4 .f32 powers[8] = {1.0, 0f40000000, 4.0, 8.0, 0.5, 0.25, 0f3E000000, -1.0};
.global .align 2 .b16 numbers[8] = {1, 65535, 3, 4, 32768, 6, 7, 8}; .global .u32 counter = 0xDEADBEEF;
.global .f64 half = 0.5;
.global .align 8 .v2 .f32 pair = {1.5, -2.5};
""".replace(".global .align 8 .v2 .f32 pair = {1.5, -2.5};", ".global .align 8 .f32 pair[2] = {1.5, -2.5};"),
)
_CALLS = Case(
    "calls and indirect branches",
    f"""{START} mad.wide.u32 %rd2, %r1, 16, %rd1; and.b32 %r7, %r1, 3; mov.u32 %r8, 0;
{{ .param .align 8 .b8 a[16]; .param .b32 b; st.param.u32 [a], %r1; st.param.u32 [a+4], %r7;
st.param.u64 [a+8], %rd1; call.uni (b), mix, (a); ld.param.b32 %r9, [b]; }}
targets: .branchtargets A, B, C, D; brx.idx %r7, targets;
A: add.u32 %r8, %r8, 1; bra E; B: add.u32 %r8, %r8, 20; C: add.u32 %r8, %r8, 300; bra E; D: mul.lo.u32 %r8, %r1, 4000;
E: setp.gt.u32 %p4, %r1, 10; @!%p4 bra F; {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r8;
call (b), twice, (a); ld.param.b32 %r8, [b]; }}
F: bar.warp.sync 0xffffffff; shfl.sync.bfly.b32 %r10, %r8, 5, 31, 0xffffffff;
st.global.v4.u32 [%rd2], {{%r8, %r9, %r10, %r7}}; ret;""",
    (Out(512), In(SOURCE[:8])),
    before=SHARED
    + """.func (.param .b32 out) twice (.param .b32 in)
{ .reg .b32 %a; .reg .pred %p; ld.param.b32 %a, [in]; setp.eq.u32 %p, %a, 1; @%p bra ONE; add.u32 %a, %a, %a;
st.param.b32 [out], %a; ret;
ONE: st.param.b32 [out], 99; ret; }
.func (.param .b32 out) mix (.param .align 8 .b8 in[16])
{ .reg .b32 %a<4>; .reg .b64 %b; ld.param.u32 %a0, [in]; ld.param.u32 %a1, [in+4]; ld.param.u64 %b, [in+8];
mad.lo.u32 %a0, %a0, 10, %a1;
setp_: { .param .b32 x; .param .b32 y; st.param.b32 [x], %a0; call.uni (y), twice, (x); ld.param.b32 %a2, [y]; }
setp0: and.b64 %b, %b, 15; cvt.u32.u64 %a3, %b; add.u32 %a2, %a2, %a3; st.param.b32 [out], %a2; ret; }
""",
)
CASES = [_printf(), _VARIABLES, _CALLS]
