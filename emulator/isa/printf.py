"""printf on the emulator: what `cute.printf` compiles to (CUDA C++ programming guide, formatted output)."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import numpy as np

from emulator.errors import IllegalInstruction, Trap

_SPEC = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<precision>\.\d+)?"
    r"(?P<length>hh|h|ll|l|z|t|j|L)?(?P<kind>[diouxXcsaAeEfFgGp%])"
)

_WIDEST = 1023
"""Width and precision of one conversion: a limit of the emulator, so that a damaged format cannot fill the memory."""


def vprintf(
    warp: Any, mask: np.ndarray, format_at: np.ndarray, arguments_at: np.ndarray, result_at: np.ndarray
) -> None:
    """Print once per executing lane, in lane order. The places are those of the call frame: the frame's first parameter
    holds the address of the format string, the second that of the packed arguments; the result is the argument
    count."""
    memory = warp.memory
    for lane in np.flatnonzero(mask).tolist():
        text = _string(memory, _word(memory, int(format_at[lane])))
        line, count = render(text, memory, _word(memory, int(arguments_at[lane])))
        warp.cluster.grid.output.append(line)
        memory.view(int(result_at[lane]), 4, write=True)[:] = np.frombuffer(struct.pack("<i", count), np.uint8)
    warp.progress()


def assertfail(
    warp: Any,
    mask: np.ndarray,
    message_at: np.ndarray,
    file_at: np.ndarray,
    line_at: np.ndarray,
    function_at: np.ndarray,
    size_at: np.ndarray,
) -> None:
    """A failed device assertion: message, file, line, function, size of a character."""
    memory, lane = warp.memory, int(mask.argmax())
    message, file, function = (
        _string(memory, _word(memory, int(place[lane]))) for place in (message_at, file_at, function_at)
    )
    line = int.from_bytes(memory.view(int(line_at[lane]), 4).tobytes(), "little")
    raise Trap(f"{file}:{line}: {function}: assertion `{message}` failed in lanes {np.flatnonzero(mask).tolist()}")


def render(text: str, memory: Any, arguments: int) -> tuple[str, int]:
    """The formatted text and the number of arguments used. Arguments lie packed with their natural alignment: 4
    bytes for int-sized conversions, 8 for long, pointers and every float."""
    place, count = arguments, 0

    def replace(match: re.Match[str]) -> str:
        nonlocal place, count
        if match["kind"] == "%":
            return "%"
        value, place = _argument(match, memory, place)
        count += 1
        return _format(match, value)

    return _SPEC.sub(replace, text), count


def _argument(match: re.Match[str], memory: Any, place: int) -> tuple[Any, int]:
    kind, wide = match["kind"], match["length"] in ("l", "ll", "z", "t", "j")
    size = 8 if wide or kind in "aAeEfFgGsp" else 4
    place = -(-place // size) * size
    raw = memory.view(place, size).tobytes()
    if kind in "aAeEfFgG":
        return struct.unpack("<d", raw)[0], place + size
    if kind == "s":
        return _string(memory, int.from_bytes(raw, "little")), place + size
    if match["length"] == "h":
        raw = raw[:2]
    return int.from_bytes(raw, "little", signed=kind in "di"), place + size


def _hexadecimal(value: float) -> str:
    """As C's %a: no trailing zeros."""
    return re.sub(r"\.?0*p", "p", value.hex()) if math.isfinite(value) else str(value)


def _format(match: re.Match[str], value: Any) -> str:
    flags, width, precision = match["flags"], match["width"], match["precision"] or ""
    if int(width or 0) > _WIDEST or int(precision[1:] or 0) > _WIDEST:
        raise IllegalInstruction(f"printf of {match.group()}: at most {_WIDEST} characters")
    kind = {"i": "d", "u": "d", "p": "x", "c": "s"}.get(match["kind"], match["kind"])
    if match["kind"] == "c":
        value = chr(value & 0xFF)
    if kind in "aA":
        return _hexadecimal(value) if kind == "a" else _hexadecimal(value).upper()
    if kind == "o" and "#" in flags:
        # C puts a zero in front where Python writes 0o.
        return f"%{flags.replace('#', '')}{width}s" % f"0{value:o}"
    return f"%{flags}{'#' if match['kind'] == 'p' else ''}{width}{precision}{kind}" % value


def _word(memory: Any, address: int) -> int:
    return int.from_bytes(memory.view(address, 8).tobytes(), "little")


def _string(memory: Any, address: int) -> str:
    """The bytes up to the terminating zero, within the region that holds the address."""
    region = memory.find(address, 1)
    if region is None:
        raise memory.fault("printf reads a string", address, 1)
    raw = memory.view(address, region.end - address).tobytes()
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
