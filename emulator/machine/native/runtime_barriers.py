"""Functions of the runtime for mbarriers: waiting for a phase that has completed, arriving, expecting bytes.

The state of a barrier is a row of words (`emulator.units.mbarrier`); rows lie in a table by shared offset.
"""

from __future__ import annotations

from emulator.builders.llvm_values import CTA, STATE
from emulator.machine.native.runtime_text import L32, L64, MASK, field, lead, splat
from emulator.units.mbarrier import MAX_COUNT, ROW, ROW_BYTES

_FIELD = 1 << 20
_PLACE = {name: 4 * k for k, name in enumerate(ROW)}


def _word(name: str) -> str:
    return field(name, "row", _PLACE[name], "i32")


_AT = f"""
define internal ptr @barrier_at(ptr %state, {L32} %address, i32 %mask) nounwind {{
start:{lead()}
  %head = extractelement {L32} %address, i32 %lead{splat("heads", "i32", "%head")}
  %differ = icmp ne {L32} %address, %heads
  %others = and {MASK} %differ, %lanes
  %others.word = bitcast {MASK} %others to i32
  %same = icmp eq i32 %others.word, 0
  br i1 %same, label %find, label %fail
find:{field("own", "state", STATE["cta"], "ptr")}
  %rank = lshr i32 %head, 24
  %cta = call ptr @cta_of(ptr %own, i32 %rank)
  %known = icmp ne ptr %cta, null
  br i1 %known, label %look, label %fail
look:{field("bytes", "cta", CTA["shared_bytes"])}{field("rows", "cta", CTA["barriers"], "ptr")}
  %offset = and i32 %head, 16777215
  %offset.wide = zext i32 %offset to i64
  %inside = icmp ult i64 %offset.wide, %bytes
  %rest = and i32 %offset, 7
  %even = icmp eq i32 %rest, 0
  %good = and i1 %inside, %even
  br i1 %good, label %read, label %fail
read:
  %distance = mul i64 %offset.wide, {ROW_BYTES // 8}
  %row = getelementptr i8, ptr %rows, i64 %distance{_word("live")}
  %made = icmp ne i32 %live, 0
  br i1 %made, label %found, label %fail
found:
  ret ptr %row
fail:
  ret ptr null
}}

define internal void @barrier_finish(ptr %row) nounwind {{
start:{_word("pending")}{_word("tx")}{_word("spent")}
  %some = or i32 %pending, %tx
  %any = or i32 %some, %spent
  %complete = icmp eq i32 %any, 0
  br i1 %complete, label %turn, label %done
turn:{_word("phase")}{_word("expected")}{_word("completions")}
  %other = xor i32 %phase, 1
  store i32 %other, ptr %phase.at
  store i32 %expected, ptr %pending.at
  %more = add i32 %completions, 1
  store i32 %more, ptr %completions.at
  %none = icmp eq i32 %expected, 0
  %none.word = zext i1 %none to i32
  store i32 %none.word, ptr %spent.at
  br label %done
done:
  ret void
}}
"""

_WAIT = f"""
define i1 @barrier_wait(ptr %state, {L32} %address, i32 %mask, {L64} %phases, i1 %parity) nounwind {{
start:{lead()}
  %row = call ptr @barrier_at(ptr %state, {L32} %address, i32 %mask)
  %known = icmp ne ptr %row, null
  br i1 %known, label %check, label %fail
check:
  %head = extractelement {L64} %phases, i32 %lead{splat("heads", "i64", "%head")}
  %differ = icmp ne {L64} %phases, %heads
  %others = and {MASK} %differ, %lanes
  %others.word = bitcast {MASK} %others to i32
  %same = icmp eq i32 %others.word, 0
  %low = and i64 %head, 1
  %high = lshr i64 %head, 63
  %wanted = select i1 %parity, i64 %low, i64 %high{_word("phase")}
  %now = zext i32 %phase to i64
  %passed = icmp ne i64 %now, %wanted
  %done = and i1 %same, %passed
  ret i1 %done
fail:
  ret i1 false
}}
"""

_ARRIVE = f"""
define i1 @barrier_arrive(ptr %state, {L32} %address, i32 %mask, {L32} %numbers) nounwind {{
start:{lead()}
  %row = call ptr @barrier_at(ptr %state, {L32} %address, i32 %mask)
  %known = icmp ne ptr %row, null
  br i1 %known, label %count, label %fail
count:
  %wide = zext {L32} %numbers to {L64}
  %mine = select {MASK} %lanes, {L64} %wide, {L64} zeroinitializer
  %total = call i64 @llvm.vector.reduce.add.v32i64({L64} %mine){_word("pending")}
  %before = zext i32 %pending to i64
  %enough = icmp ule i64 %total, %before
  %some = icmp ne i64 %total, 0
  %good = and i1 %enough, %some
  br i1 %good, label %take, label %fail
take:
  %after = sub i64 %before, %total
  %after.word = trunc i64 %after to i32
  store i32 %after.word, ptr %pending.at
  call void @barrier_finish(ptr %row)
  call void @progress(ptr %state)
  ret i1 true
fail:
  ret i1 false
}}
"""

_TOKEN = f"""
define internal i64 @barrier_token(ptr %row, i32 %pending) nounwind {{
start:{_word("phase")}{_word("expected")}{_word("tx")}
  %full.e = sub i32 {_FIELD}, %expected
  %cut.e = and i32 %full.e, {_FIELD - 1}
  %wide.e = zext i32 %cut.e to i64
  %place.e = shl i64 %wide.e, 1
  %cut.t = and i32 %tx, {2 * _FIELD - 1}
  %wide.t = zext i32 %cut.t to i64
  %place.t = shl i64 %wide.t, 21
  %full.p = sub i32 {_FIELD}, %pending
  %cut.p = and i32 %full.p, {_FIELD - 1}
  %wide.p = zext i32 %cut.p to i64
  %place.p = shl i64 %wide.p, 43
  %wide.f = zext i32 %phase to i64
  %place.f = shl i64 %wide.f, 63
  %token.a = or i64 %place.e, %place.t
  %token.b = or i64 %place.p, %place.f
  %token = or i64 %token.a, %token.b
  ret i64 %token
}}
"""

_TOKENS = f"""
define i1 @barrier_arrive_tokens(ptr %state, {L32} %address, i32 %mask, {L32} %numbers, ptr %out) nounwind {{
start:{lead()}
  %counts = alloca {L32}, align 64
  store {L32} %numbers, ptr %counts, align 64
  %row = call ptr @barrier_at(ptr %state, {L32} %address, i32 %mask)
  %known = icmp ne ptr %row, null
  br i1 %known, label %count, label %fail
count:
  %zero = icmp eq {L32} %numbers, zeroinitializer
  %idle = and {MASK} %zero, %lanes
  %idle.word = bitcast {MASK} %idle to i32
  %busy = icmp eq i32 %idle.word, 0
  %wide = zext {L32} %numbers to {L64}
  %mine = select {MASK} %lanes, {L64} %wide, {L64} zeroinitializer
  %total = call i64 @llvm.vector.reduce.add.v32i64({L64} %mine){_word("pending")}
  %before = zext i32 %pending to i64
  %enough = icmp ule i64 %total, %before
  %good = and i1 %enough, %busy
  br i1 %good, label %next, label %fail
next:
  %lane = phi i32 [ %lead, %count ], [ %following, %next ]
  %rest = phi i32 [ %mask, %count ], [ %others, %next ]
  %left = phi i32 [ %pending, %count ], [ %after, %next ]
  %token = call i64 @barrier_token(ptr %row, i32 %left)
  %slot = getelementptr i64, ptr %out, i32 %lane
  store i64 %token, ptr %slot
  %number.at = getelementptr i32, ptr %counts, i32 %lane
  %number = load i32, ptr %number.at
  %after = sub i32 %left, %number
  %fewer = sub i32 %rest, 1
  %others = and i32 %rest, %fewer
  %following = call i32 @llvm.cttz.i32(i32 %others, i1 false)
  %more = icmp ne i32 %others, 0
  br i1 %more, label %next, label %done
done:
  store i32 %after, ptr %pending.at
  call void @barrier_finish(ptr %row)
  call void @progress(ptr %state)
  ret i1 true
fail:
  ret i1 false
}}
"""

_ONE = f"""
define i1 @barrier_change(ptr %state, {L32} %address, i32 %mask, {L32} %numbers, i32 %sign, i1 %arrive,
    ptr %out) nounwind {{
start:{lead()}
  %lone = call i32 @llvm.ctpop.i32(i32 %mask)
  %alone = icmp eq i32 %lone, 1
  %row = call ptr @barrier_at(ptr %state, {L32} %address, i32 %mask)
  %known = icmp ne ptr %row, null
  %usual = and i1 %alone, %known
  br i1 %usual, label %read, label %fail
read:{_word("pending")}{_word("tx")}
  %number = extractelement {L32} %numbers, i32 %lead
  %number.wide = zext i32 %number to i64
  %sign.wide = sext i32 %sign to i64
  %change = mul i64 %number.wide, %sign.wide
  %tx.wide = sext i32 %tx to i64
  %tx.new = add i64 %tx.wide, %change
  %tx.shifted = add i64 %tx.new, {MAX_COUNT}
  %fits = icmp ule i64 %tx.shifted, {2 * MAX_COUNT}
  %taken = zext i1 %arrive to i32
  %enough = icmp ule i32 %taken, %pending
  %good = and i1 %fits, %enough
  br i1 %good, label %apply, label %fail
apply:
  %token = call i64 @barrier_token(ptr %row, i32 %pending)
  %slot = getelementptr i64, ptr %out, i32 %lead
  br i1 %arrive, label %answer, label %change.it
answer:
  store i64 %token, ptr %slot
  br label %change.it
change.it:
  %tx.word = trunc i64 %tx.new to i32
  store i32 %tx.word, ptr %tx.at
  %left = sub i32 %pending, %taken
  store i32 %left, ptr %pending.at
  call void @barrier_finish(ptr %row)
  call void @progress(ptr %state)
  ret i1 true
fail:
  ret i1 false
}}
"""


def barriers() -> list[str]:
    """Texts of the functions. `barrier_arrive_tokens` stores the token of every lane. `barrier_change` is for one lane:
    it adds `sign` times its number to the byte count and, with `arrive`, arrives once and stores the token."""
    return [_AT, _WAIT, _ARRIVE, _TOKEN, _TOKENS, _ONE]
