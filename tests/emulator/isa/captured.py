"""The scalar forms captured on an H200: their PTX, their inputs and the words that came out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).resolve().parents[2] / "data" / "hopper_goldens.npz"


@cache
def archive() -> Any:
    """The archive itself."""
    return np.load(_FILE)


def member(name: str) -> np.ndarray:
    """One array of the archive."""
    return archive()[name]


@cache
def table(name: str) -> Any:
    """One JSON member of the archive."""
    return json.loads(bytes(archive()[name]))


@dataclass(frozen=True)
class Form:
    """One captured instruction form. `body` leaves its result in register `d`; `inputs` are the registers a, b, c."""

    text: str
    body: str
    registers: dict[str, str]
    inputs: dict[str, np.ndarray]
    words: np.ndarray

    @property
    def opcode(self) -> str:
        """The dotted opcode."""
        return self.text.split()[0]


@cache
def _kernels() -> dict[str, str]:
    text = bytes(member("ptx/alu")).decode()
    return {k[1]: k[0] for k in re.finditer(r"\.visible \.entry (k\d+)\(.*?ret; \}", text, re.S)}


def groups() -> list[dict[str, Any]]:
    """The index: one entry per array of results."""
    return table("alu/index")


def forms(entry: dict[str, Any]) -> list[Form]:
    """The forms of one entry of the index."""
    sources = [np.arange(65536, dtype=np.uint16) if s == "all16" else member(f"alu/in/{s}") for s in entry["src"]]
    inputs = {name: s[:: entry["step"]][: entry["n"]] for name, s in zip("abc", sources, strict=False)}
    words = member(entry["out"])
    columns = words.T if entry["op_axis"] == 0 else words
    found = []
    for k, text in enumerate(entry["ops"]):
        body, registers = _cut(_kernels()[dict(table("launch/alu"))[text]])
        found.append(Form(text, body, registers, inputs, columns[:, k]))
    return found


def _cut(kernel: str) -> tuple[str, dict[str, str]]:
    """What a probe kernel does between loading its operands and storing its result, and its registers."""
    head, *lines = [line for line in kernel.splitlines() if line.strip()]
    registers = {
        name: kind for kind, names in re.findall(r"\.reg \.(\w+) ([\w,]+);", head) for name in names.split(",")
    }
    start = max((k for k, line in enumerate(lines) if "ld.global" in line), default=0) + 1
    end = next(k for k, line in enumerate(lines) if line.startswith(" ld.param.u64 O"))
    return "\n".join(lines[start:end]), registers
