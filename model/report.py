"""What a decode cost, for a terminal, as JSON and as Markdown: all three from the same plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values, in the order in which they are shown."""
    per, mtp, memory, tokens = found["per_token"], found["mtp"], found["memory"], found["tokens"]
    speed = found["tokens_per_second"]
    rows = [
        ("model", f"{found['model']['checkpoint']}, {found['model']['precision']}, {found['model']['activations']}"),
        ("device", f"{found['device']['name']}, kernels of {found['device']['arch']}"),
        ("prompt", f"{tokens['prefilled']} tokens computed, {tokens['reused']} found in the cache"),
        ("new", f"{tokens['new']} tokens; ended by {', '.join(turn['ended_by'] for turn in found['turns'])}"),
        ("loading", f"{found['seconds']['load']:.2f} s"),
        ("prefill", f"{found['seconds']['prefill']:.3f} s"),
        ("decode", f"{speed:.1f} tokens/s, {1e3 / speed:.2f} ms a token" if speed else "too few tokens to time"),
        ("launches", _count(per["launches"], per["kernels"])),
        ("syncs", f"{per['syncs']:g} a token" if per["syncs"] is not None else "too few tokens to count"),
        ("bytes", _bytes_per_token(per["bytes"])),
        ("memory", _memory(memory)),
    ]
    if mtp["drafts"]:
        share = mtp["accepted"] / mtp["drafted"] if mtp["drafted"] else 0.0
        text = f"{mtp['accepted']} of {mtp['drafted']} guesses accepted ({share:.0%})"
        rows.insert(8, ("drafts", f"{text}, {mtp['tokens_per_step']:.2f} tokens a step"))
    return rows


def _memory(memory: dict[str, int]) -> str:
    """The packed weights are those that kernels have in their own layout, beside the originals."""
    packed = f", packed again for kernels {size(memory['packed'])}" if memory["packed"] else ""
    rest = f"cache {size(memory['cache'])}, peak {size(memory['peak'])}"
    return f"weights {size(memory['weights'])}{packed}, {rest}"


def _count(launches: float | None, kernels: float | None) -> str:
    if launches is None or kernels is None:
        return "too few tokens to count"
    return f"{launches:g} a token, {kernels:g} of them compiled kernels"


def _bytes_per_token(parts: dict[str, float]) -> str:
    names = {"weights": "weights", "read": "caches", "written": "written"}
    detail = ", ".join(f"{text} {size(parts[name])}" for name, text in names.items())
    return f"{size(parts['total'])} a token at least ({detail})"


def size(nbytes: float) -> str:
    """Bytes in decimal units, three digits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} B"


def show(found: dict[str, Any], ops: Table, out: Console) -> None:
    """Print the operations table and the figures."""
    out.print(ops)
    table = Table(show_header=False, box=None, padding=(0, 1))
    for name, value in lines(found):
        table.add_row(name, value)
    out.print(table)


def markdown(found: dict[str, Any]) -> str:
    """The same for a page, with the text."""
    parts = ["# Decode", "", f"`{found['command']}`", "", "| | |", "|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in lines(found)]
    kernels = sum(row["source"] == "kernel" for row in found["ops"])
    parts += ["", f"## Operations: {kernels} of {len(found['ops'])} on kernels", ""]
    parts += ["| operation | runs on | gate | why |", "|---|---|---|---|"]
    parts += [f"| {row['op']} | {row['source']} | {row['gate']} | {row['why']} |" for row in found["ops"]]
    for number, turn in enumerate(found["turns"], start=1):
        shown = turn["text"] if turn["text"] is not None else " ".join(map(str, turn["ids"]))
        parts += ["", f"## Reply {number}", "", *(f"    {line}" for line in shown.splitlines())]
    return "\n".join(parts) + "\n"


def write(found: dict[str, Any], folder: Path) -> None:
    """`result.json` and `summary.md` in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "summary.md").write_text(markdown(found), encoding="utf-8")
