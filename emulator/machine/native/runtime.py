"""Functions that native kernels call: memory, tensor memory and mbarriers, where nothing unusual happens.

Each tries the work of a handler of `isa`. Where it must not, nothing has changed and the handler has to do it: for an
address outside of what is registered, for lanes that differ where they usually agree, for faults. Functions of memory
ask the handler themselves and answer whether to go on; the others answer whether they have done the work. Registers
are vectors of 32 lanes; `mask` has a bit for every lane that executes; `out`, `buffer` and `values` point to scratch
vectors that lie behind each other. The text is LLVM IR, compiled once per machine.
"""

from __future__ import annotations

from emulator.builders.llvm_values import CTA, LAUNCH, STATE
from emulator.machine.native.runtime_barriers import barriers
from emulator.machine.native.runtime_text import L32, L64, MASK, field, lead, splat
from emulator.memory.spaces import SHARED_WINDOW

REGION_WORDS = 3
"""First address, end and writability of a registered region."""

WIDTHS = (1, 2, 4, 8)

_CTA_OF = f"""
define internal ptr @cta_of(ptr %own, i32 %rank) nounwind {{{field("count", "own", CTA["cta_count"])}
  %wide = zext i32 %rank to i64
  %known = icmp ult i64 %wide, %count
  br i1 %known, label %found, label %unknown
found:{field("table", "own", CTA["ctas"], "ptr")}
  %place = getelementptr ptr, ptr %table, i64 %wide
  %cta = load ptr, ptr %place
  ret ptr %cta
unknown:
  ret ptr null
}}

define internal i1 @ask(ptr %state, i32 %mask, i32 %number, i64 %guard_at) nounwind {{
  {field("scratch", "state", STATE["scratch"], "ptr").strip()}
  {field("callback", "state", STATE["callback"], "ptr").strip()}
  %lanes = bitcast i32 %mask to {MASK}
  %octets = zext {MASK} %lanes to <32 x i8>
  %guard = getelementptr i8, ptr %scratch, i64 %guard_at
  store <32 x i8> %octets, ptr %guard, align 32
  %answer = call i32 %callback(i32 %number)
  %on = icmp eq i32 %answer, 0
  ret i1 %on
}}

define internal void @progress(ptr %state) nounwind {{{field("launch", "state", STATE["launch"], "ptr")}
  %at = getelementptr i8, ptr %launch, i64 {LAUNCH["changes"]}
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}}

define internal i1 @find_region(ptr %launch, i64 %low, i64 %end, i1 %write) nounwind {{
start:{field("table", "launch", LAUNCH["regions"], "ptr")}{field("count", "launch", LAUNCH["region_count"])}
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %other ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %look, label %missing
look:
  %index = mul i64 %k, {REGION_WORDS}
  %region = getelementptr i64, ptr %table, i64 %index{field("first", "region", 0)}{field("last", "region", 8)}
  {field("writable", "region", 16).strip()}
  %above = icmp uge i64 %low, %first
  %below = icmp ule i64 %end, %last
  %inside = and i1 %above, %below
  %may = icmp ne i64 %writable, 0
  %reads = xor i1 %write, true
  %allowed = or i1 %may, %reads
  %good = and i1 %inside, %allowed
  br i1 %good, label %found, label %other
other:
  %more = add i64 %k, 1
  br label %next
found:
  ret i1 true
missing:
  ret i1 false
}}
"""


def _shared_places() -> str:
    """Checks shared addresses; leaves `%base` and `%offset`, or goes to `fail`."""
    return f"""{lead()}{field("own", "state", STATE["cta"], "ptr")}
  %head = extractelement {L32} %address, i32 %lead
  %rank = lshr i32 %head, 24
  %cta = call ptr @cta_of(ptr %own, i32 %rank)
  %lost = icmp eq ptr %cta, null
  br i1 %lost, label %fail, label %known
known:
  %window.low = shl i32 %rank, 24{splat("window", "i32", "%window.low")}
  %offset = sub {L32} %address, %window{field("bytes", "cta", CTA["shared_bytes"])}
  %size = trunc i64 %bytes to i32
  %most = sub i32 %size, %extent{splat("limit", "i32", "%most")}
  %low.bits = sub i32 %extent, 1{splat("low", "i32", "%low.bits")}
  %beyond = icmp ugt {L32} %offset, %limit
  %rest = and {L32} %offset, %low
  %odd = icmp ne {L32} %rest, zeroinitializer
  %wrong = or {MASK} %beyond, %odd
  %bad = and {MASK} %wrong, %lanes
  %bad.word = bitcast {MASK} %bad to i32
  %fault = icmp ne i32 %bad.word, 0
  br i1 %fault, label %fail, label %good
good:{field("base", "cta", CTA["shared"], "ptr")}"""


def _global_places(write: bool) -> str:
    """Checks global addresses; leaves `%base` (null) and `%offset`, or goes to `fail`."""
    return f"""
  %lanes = bitcast i32 %mask to {MASK}
  %lows = select {MASK} %lanes, {L64} %address, {L64} splat (i64 -1)
  %highs = select {MASK} %lanes, {L64} %address, {L64} zeroinitializer
  %first = call i64 @llvm.vector.reduce.umin.v32i64({L64} %lows)
  %last = call i64 @llvm.vector.reduce.umax.v32i64({L64} %highs)
  %bits = call i64 @llvm.vector.reduce.or.v32i64({L64} %highs)
  %wide = zext i32 %extent to i64
  %low.bits = sub i64 %wide, 1
  %rest = and i64 %bits, %low.bits
  %odd = icmp ne i64 %rest, 0
  %end = add i64 %last, %wide
  %around = icmp ule i64 %end, %first
  %wrong = or i1 %odd, %around
  br i1 %wrong, label %fail, label %search
search:{field("launch", "state", STATE["launch"], "ptr")}
  %found = call i1 @find_region(ptr %launch, i64 %first, i64 %end, i1 {str(write).lower()})
  br i1 %found, label %good, label %fail
good:
  %base = inttoptr i64 0 to ptr
  %offset = add {L64} %address, zeroinitializer"""


def _move(width: int, write: bool, index: str) -> str:
    """The loop over the elements of a vector access, and the two ends of the function."""
    kind, scalar = f"<32 x i{8 * width}>", f"v32i{8 * width}"
    stride = max(64, 32 * width)
    body = (
        f"""
  %value = load {kind}, ptr %place, align 64
  call void @llvm.masked.scatter.{scalar}.v32p0({kind} %value, <32 x ptr> %pointers, i32 {width}, {MASK} %lanes)"""
        if write
        else f"""
  %value = call {kind} @llvm.masked.gather.{scalar}.v32p0(<32 x ptr> %pointers, i32 {width}, {MASK} %lanes,
    {kind} zeroinitializer)
  store {kind} %value, ptr %place, align 64"""
    )
    done = "\n  call void @progress(ptr %state)" if write else ""
    return f"""
  br label %next
next:
  %k = phi i64 [ 0, %good ], [ %more, %next ]
  %ahead = mul i64 %k, {width}
  %moved = getelementptr i8, ptr %base, i64 %ahead
  %pointers = getelementptr i8, ptr %moved, {index} %offset
  %step = mul i64 %k, {stride}
  %place = getelementptr i8, ptr %buffer, i64 %step{body}
  %more = add i64 %k, 1
  %left = icmp ult i64 %more, %count
  br i1 %left, label %next, label %done
done:{done}
  ret i1 true
fail:
  ret i1 false
}}
"""


_BACK = "i32 %number, i64 %address_at, i64 %guard_at"


def _asking(name: str, kind: str, parameters: str) -> str:
    """The function of that name: `try.<name>`, and where it cannot, a call of Python with the address in scratch."""
    given = f"ptr %state, {kind} %address, {parameters}"
    return f"""
define i1 @{name}({given}, {_BACK}) nounwind {{
start:
  %done = call i1 @try.{name}({given})
  br i1 %done, label %yes, label %no
yes:
  ret i1 true
no:{field("scratch", "state", STATE["scratch"], "ptr")}
  %kept = getelementptr i8, ptr %scratch, i64 %address_at
  store {kind} %address, ptr %kept, align 64
  %on = call i1 @ask(ptr %state, i32 %mask, i32 %number, i64 %guard_at)
  ret i1 %on
}}
"""


def _access(width: int, write: bool) -> str:
    """Loads or stores of one width: shared, global, and generic addresses, which are either."""
    name = "store" if write else "load"
    arguments = "i32 %mask, i64 %count, i32 %extent, ptr %buffer"
    asking = [
        _asking(f"{name}_{where}_{width}", kind, arguments)
        for where, kind in (("shared", L32), ("global", L64), ("generic", L64))
    ]
    return f"""
define internal i1 @try.{name}_shared_{width}(ptr %state, {L32} %address, {arguments}) nounwind {{
start:{_shared_places()}{_move(width, write, L32)}
define internal i1 @try.{name}_global_{width}(ptr %state, {L64} %address, {arguments}) nounwind {{
start:{_global_places(write)}{_move(width, write, L64)}
define internal i1 @try.{name}_generic_{width}(ptr %state, {L64} %address, {arguments}) nounwind {{
start:
  %inside = sub {L64} %address, splat (i64 {SHARED_WINDOW})
  %lanes = bitcast i32 %mask to {MASK}
  %far = icmp ugt {L64} %inside, splat (i64 4294967295)
  %outside = and {MASK} %far, %lanes
  %outside.word = bitcast {MASK} %outside to i32
  %plain = icmp ne i32 %outside.word, 0
  br i1 %plain, label %global, label %shared
global:
  %one = call i1 @try.{name}_global_{width}(ptr %state, {L64} %address, {arguments})
  ret i1 %one
shared:
  %short = trunc {L64} %inside to {L32}
  %two = call i1 @try.{name}_shared_{width}(ptr %state, {L32} %short, {arguments})
  ret i1 %two
}}
{"".join(asking)}"""


def _tensor_place() -> str:
    """Checks an address of tensor memory, and that all lanes are here; leaves `%base` and `%straight`, or goes to
    `fail`."""
    return f"""{field("whole", "state", STATE["whole"])}{field("quarter", "state", STATE["quarter"])}
  %together = icmp ne i64 %whole, 0
  %all = icmp eq i32 %mask, -1
  %here = and i1 %together, %all
  br i1 %here, label %place.lanes, label %fail
place.lanes:{field("cta", "state", STATE["cta"], "ptr")}{field("words", "cta", CTA["tensor"], "ptr")}
  {field("columns.at", "cta", CTA["tensor_columns"], "ptr").strip()}
  %made = icmp ne ptr %words, null
  br i1 %made, label %look, label %fail
look:
  %held = load i64, ptr %columns.at
  %head = extractelement {L32} %address, i32 0
  %column = and i32 %head, 65535
  %given = lshr i32 %head, 16
  %own = trunc i64 %quarter to i32
  %high = icmp ult i32 %given, 32
  %added = add i32 %given, %own
  %lane = select i1 %high, i32 %added, i32 %given
  %from = sub i32 %lane, %own
  %straight = icmp eq ptr %map, null
  %most = select i1 %straight, i32 0, i32 16
  %inside = icmp ule i32 %from, %most
  %half = and i32 %from, 15
  %even = icmp eq i32 %half, 0
  %end = add i32 %column, %columns
  %fits = icmp ule i32 %end, 512
  %first = lshr i32 %column, 5
  %reach = sub i32 %end, 1
  %last = lshr i32 %reach, 5
  %first.wide = zext i32 %first to i64
  %last.wide = zext i32 %last to i64
  %upper = shl i64 2, %last.wide
  %upper.all = sub i64 %upper, 1
  %lower = shl i64 -1, %first.wide
  %wanted = and i64 %upper.all, %lower
  %got = and i64 %wanted, %held
  %owned = icmp eq i64 %got, %wanted
  %a = and i1 %inside, %even
  %b = and i1 %fits, %owned
  %good.all = and i1 %a, %b
  br i1 %good.all, label %good, label %fail
good:
  %row = mul i32 %lane, 512
  %word = add i32 %row, %column
  %base = getelementptr i32, ptr %words, i32 %word"""


def _tensor(write: bool) -> str:
    """Loads or stores of tensor memory: `map` holds the word of every register and lane behind the first one, and is
    null where register r of lane t lies r columns to the right in lane t. All lanes must be here."""
    move = (
        f"""
  %value = load {L32}, ptr %place, align 64
  call void @llvm.masked.scatter.v32i32.v32p0({L32} %value, <32 x ptr> %pointers, i32 4, {MASK} splat (i1 true))"""
        if write
        else f"""
  %value = call {L32} @llvm.masked.gather.v32i32.v32p0(<32 x ptr> %pointers, i32 4, {MASK} splat (i1 true),
    {L32} poison)
  store {L32} %value, ptr %place, align 64"""
    )
    rows = ", ".join(f"i32 {512 * k}" for k in range(32))
    done = "\n  call void @progress(ptr %state)" if write else ""
    name = "store_tensor" if write else "load_tensor"
    arguments = "i32 %mask, i32 %columns, ptr %map, i64 %count, ptr %buffer"
    return f"""
define internal i1 @try.{name}(ptr %state, {L32} %address, {arguments}) nounwind {{
start:{_tensor_place()}
  br label %next
next:
  %k = phi i64 [ 0, %good ], [ %more, %join ]
  br i1 %straight, label %rows, label %mapped
rows:
  %right = getelementptr i32, ptr %base, i64 %k
  %pointers.rows = getelementptr i32, ptr %right, {L32} <{rows}>
  br label %join
mapped:
  %entry = getelementptr {L32}, ptr %map, i64 %k
  %offsets = load {L32}, ptr %entry, align 4
  %pointers.map = getelementptr i32, ptr %base, {L32} %offsets
  br label %join
join:
  %pointers = phi <32 x ptr> [ %pointers.rows, %rows ], [ %pointers.map, %mapped ]
  %place = getelementptr {L32}, ptr %buffer, i64 %k{move}
  %more = add i64 %k, 1
  %left = icmp ult i64 %more, %count
  br i1 %left, label %next, label %done
done:{done}
  ret i1 true
fail:
  ret i1 false
}}
{_asking(name, L32, arguments)}"""


def module() -> str:
    """The whole text."""
    accesses = [_access(width, write) for width in WIDTHS for write in (False, True)]
    return "\n".join([_CTA_OF, *accesses, _tensor(False), _tensor(True), *barriers()])
