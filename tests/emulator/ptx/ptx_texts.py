"""Small PTX texts for the tests of this folder, and what makes two modules the same."""

from __future__ import annotations

from dataclasses import replace

from emulator.ptx import Function, Instruction, Module, parse

HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"

REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<16>; .reg .f32 %f<4>; .reg .f64 %fd<4>; "
    ".reg .b128 %q<2>;\n"
)


def entry(
    body: str, before: str = "", parameters: str = ".param .u64 k_param_0, .param .align 16 .b8 k_param_1[24]"
) -> str:
    """A module of one kernel `k` with registers of every type; `before` stands ahead of the kernel."""
    return f"{HEADER}{before}\n.visible .entry k({parameters})\n{{\n{REGISTERS}{body}\n}}\n"


def kernel(body: str, before: str = "") -> Function:
    """The parsed kernel of `entry`."""
    return parse(entry(body, before)).functions["k"]


def only(statement: str, before: str = "") -> Instruction:
    """The one instruction of a kernel."""
    (instruction,) = kernel(statement, before).instructions
    return instruction


def bare(module: Module) -> Module:
    """The module without what printing does not keep: lines, source places, texts."""
    functions = {
        name: replace(f, instructions=tuple(replace(i, line=0, text="", loc=None) for i in f.instructions))
        for name, f in module.functions.items()
    }
    return replace(module, source="", functions=functions)


EVERYTHING = (
    HEADER
    + r"""
// every form of statement and operand once
.file 1 "kernels/demo.py"
.extern .shared .align 1024 .b8 dynamic[];
.shared .align 8 .b64 bars[4];
.global .align 4 .u32 counter = 7;
.const .f32 table[2][3] = {{0f3F800000, 1.5, -2.0}, {0d4000000000000000}};
.global .v2 .b32 pairs[2] = {{1, 2}, {3, 4}};
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 args);
.func (.param .b32 out) helper (.param .b32 in)
{
    .reg .b32 %r<2>;
    ld.param.b32 %r0, [in];
    add.s32 %r1, %r0, 1;
    st.param.b32 [out], %r1;
    ret;
}
.visible .func (.param .b32 out) other (.param .b32 in);
.alias other, helper;
.visible .entry demo(
    .param .align 64 .b8 demo_param_0[128],
    .param .u64 .ptr .global .align 16 demo_param_1,
    .param .f32 demo_param_2
)
.reqntid 128, 1, 1
.minnctapersm 1
.reqnctapercluster 2, 1, 1
.explicitcluster
{
    .local .align 8 .b8 stack[16];
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<3>;
    .reg .b128 %handle;
    .reg .v4 .b32 abcd;
    .loc 1 12 4
    mov.u32 %r1, %tid.x;
    mov.b32 %r2, dynamic;
    mov.b64 %rd1, demo_param_0;
    mov.b64 %rd2, bars+16;
    ld.param.b64 %rd3, [demo_param_0+64];
    setp.lt.and.u32 %p1|%p2, %r1, 0x10, !%p3;
    @!%p1 bra $skip;
    ld.global.v4.b32 abcd, [%rd3+-16];
    mov.b64 {_, abcd.w}, %rd3;
    mov.b64 {%r3, %r4}, %rd3;
    .loc 1 20 9, function_name $info, inlined_at 1 13 2
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2+128], [%rd1, {%r3, %r4}], [%r2];
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1+64, {0, %r4}], [%r2];
    {
        .reg .pred P1;
        LAB_WAIT:
        mbarrier.try_wait.parity.shared.b64 P1, [%r2], 0, 10000000;
        @P1 bra.uni DONE;
        bra.uni LAB_WAIT;
        DONE:
    }
    {
        .reg .pred P1;
        LAB_WAIT:
        mbarrier.try_wait.parity.shared.b64 P1, [%r2+8], 1;
        @P1 bra.uni DONE;
        bra.uni LAB_WAIT;
        DONE:
    }
    fma.rn.f32 %f1, %f2, 0f3F000000, -1.25;
    add.s32 %r5, %r5, WARP_SZ;
    add.s32 %r5, %r5, -017;
    mbarrier.arrive.shared::cluster.b64 _, [%r2], 0b11U;
    st.shared.b32 [16], %r5;
    { // call frame
        .param .b32 p0;
        .param .b32 r0;
        st.param.b32 [p0], %r5;
        call.uni (r0), helper, (p0);
        ld.param.b32 %r6, [r0];
    }
    {
        .param .b32 p0;
        .param .b32 r0;
        mov.b64 %rd4, helper;
        st.param.b32 [p0], %r5;
        shape: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (r0), %rd4, (p0), shape;
        call (r0), other, (7);
        any: .calltargets helper, other;
        call (r0), %rd4, (p0), any;
    }
    choices: .branchtargets $skip, $end;
    brx.idx %r5, choices;
    .pragma "nounroll";
$skip:
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %handle;
    trap;
$end:
    ret;
}
.section .debug_str { $info: .b8 100, 0 { .b32 1 } }
"""
)
"""One text with every form; its numbers are asserted where each form is tested."""
