"""One decode from flags to report: load, prefill, stream tokens, and say what they cost."""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import backends
from backends.base import Counters
from backends.count import counting
from model import demo, prompt, report
from model.checkpoint import load
from model.cli import EXIT_OK, Ledger, UsageError
from model.config import Config
from model.conversation import Conversation
from model.errors import InputError
from model.forward import Model
from model.kernels import KERNELS
from model.ops import Given, Ops
from model.reference import Stored
from model.sampler import Sampler
from model.session import Session
from model.text import Text
from model.traffic import step_traffic

DEFAULT_PROMPT = "The kernel of a stage is"
SMALL = 64_000_000
"""Bytes of weights up to which one thread is faster than several: their products are too small to share."""
BLOCK = 256
"""Tokens of a block of the cache."""
ACTIVATIONS: dict[str, tuple[torch.dtype, Stored]] = {
    "fp32": (torch.float32, "plain"),
    "bf16": (torch.bfloat16, "plain"),
    "fp8": (torch.bfloat16, "fp8"),
    "nvfp4": (torch.bfloat16, "nvfp4"),
}
"""Dtype of activations, and how inputs of linears are stored."""


@dataclass
class Costs:
    """What was measured while decoding. `steps`: seconds and new tokens of each step after the first of a reply; those
    that were counted are left out, because counting is slow."""

    prefill_s: float = 0.0
    steps: list[tuple[float, int]] = field(default_factory=list)
    counters: Counters | None = None
    counted_tokens: int = 0

    @property
    def seconds(self) -> float:
        """Of the steps that were timed."""
        return sum(s for s, _ in self.steps)

    @property
    def tokens(self) -> int:
        """That they gave."""
        return sum(n for _, n in self.steps)


def decode(options: argparse.Namespace, ledger: Ledger) -> int:
    """Do what the flags say; gives the exit code. Raises what `model.cli.main` turns into exit codes."""
    device = _device(options.device)
    notes = Console(stderr=True, quiet=options.quiet)
    folder = demo.folder() if options.checkpoint is None else Path(options.checkpoint)
    small = options.checkpoint is None and device.type == "cpu"
    options.precision = options.precision or ("fp32" if small else "native")
    started = time.perf_counter()
    config, weights = load(
        folder,
        None if options.config is None else Config.load(options.config),
        precision=options.precision,
        device=device,
        progress=not options.quiet,
    )
    load_s = time.perf_counter() - started
    if device.type == "cpu" and weights.nbytes <= SMALL:
        torch.set_num_threads(1)
    if not options.mtp:
        weights = replace(weights, mtp=None)
    arch = options.arch or _arch(device)
    on = "cuda" if device.type == "cuda" else "emulated"
    activations = options.activations or ("bf16" if device.type == "cuda" else "fp32")
    dtype, stored = ACTIVATIONS[activations]
    ops = Ops.from_ledger(
        arch,
        ledger(arch, on) if options.kernels else {},
        backend=lambda: backends.get(on, arch=f"sm_{arch[2:]}a", **_index(device)),
        kernels=KERNELS if options.kernels else (),
        given=Given(config, weights, dtype, stored),
        without="no kernel yet" if options.kernels else "--no-kernels",
    )
    model = Model(config, weights, ops, dtype=dtype)
    talk = _Talk(options, model, Text.beside(folder, config))
    replies = talk.run()
    found = _found(options, talk, replies, folder, arch, on, activations, load_s)
    if not options.quiet:
        report.show(found, ops.table(), notes)
    if options.report:
        report.write(found, Path(options.report))
        notes.print(f"report  {options.report}/result.json, summary.md")
    return EXIT_OK


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}; allowed: auto, cpu, cuda, cuda:N") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        found = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
        raise UsageError(f"--device {name}: this machine has {found}; allowed: auto, cpu, cuda, cuda:N")
    return device


def _arch(device: torch.device) -> str:
    """The architecture of the GPU as gates.yaml calls it; sm100 on a CPU, which has none."""
    if device.type != "cuda":
        return "sm100"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm{major}{minor}"


def _index(device: torch.device) -> dict[str, int]:
    """Which GPU, for its backend."""
    return {"index": device.index or 0} if device.type == "cuda" else {}


class _Talk:
    """The turns of one run: prompts to token ids, replies to text as they come."""

    def __init__(self, options: argparse.Namespace, model: Model, text: Text | None) -> None:
        self.options, self.model, self.text = options, model, text
        self.costs = Costs()
        self.prompts: list[list[int]] = []
        self.turns = options.prompt or ([DEFAULT_PROMPT] if text is not None else ["ids:0 2 3"])
        self.conversation = self._conversation()
        drafts, turns = options.drafts or 0, len(self.turns)
        apart = options.mode == "thinking" and turns > 1
        needed = sum(len(self._lone(turn)) for turn in self.turns) + turns * (options.max_new + 1) + drafts
        cache = {"entries": options.entries} if options.entries else {}
        # Two sequences share the blocks of what they have in common, except the one that both write on.
        tokens = -(-(options.tokens or needed) // BLOCK) * BLOCK * (1 + apart)
        self.cache = model.new_cache(1 + apart, tokens, rewind=drafts, block_tokens=BLOCK, **cache)
        sampler = Sampler(
            temperature=options.temperature,
            top_p=options.top_p,
            seeds=(options.seed,),
            draws=options.max_new * turns + drafts,
            device=model.device,
        )
        stop = None if options.ignore_eos else model.config.eos_token_id
        self.session = Session(model, self.cache, sampler, stop=stop, drafts=drafts, chunk=options.chunk)

    def run(self) -> list[list[int]]:
        """Every turn; the new ids of each."""
        replies: list[list[int]] = []
        for number, turn in enumerate(self.turns):
            ids = self.conversation.ask(turn) if self.conversation else self._lone(turn)
            again = self.conversation is not None and number + 1 < len(self.turns)
            keep = self.conversation.lasting if self.conversation and again else 0
            self.prompts.append(ids)
            new: list[int] = []
            show = self._printer()
            for piece in self._steps(self.session.reply(ids, self.options.max_new, keep=keep)):
                new += piece
                show(piece)
            print(flush=True)
            replies.append(new)
            if self.conversation:
                self.conversation.answered(new)
        return replies

    def _conversation(self) -> Conversation | None:
        """None in raw mode."""
        options = self.options
        if options.mode == "raw":
            return None
        ids = [turn for turn in self.turns if turn.startswith("ids:")]
        if ids:
            raise UsageError(
                f"--prompt '{ids[0][:20]}' is ids, which --mode {options.mode} cannot lay out; allowed: raw"
            )
        return Conversation(self._tokenizer(), thinking=options.mode == "thinking", system=options.system)

    def _lone(self, turn: str) -> list[int]:
        """The prompt of a turn that has none before it."""
        if turn.startswith("ids:"):
            return _numbers(turn[4:])
        if self.conversation is not None:
            return self._conversation().ask(turn)  # type: ignore[union-attr]
        return self._tokenizer().encode(prompt.BOS + turn)

    def _tokenizer(self) -> Text:
        if self.text is None:
            raise UsageError("the checkpoint has no tokenizer.json: give ids, --prompt 'ids:0 5 7'")
        return self.text

    def _printer(self) -> Any:
        """What shows new tokens at once: as text if there is a tokenizer, else as ids."""
        pieces = self.text.stream() if self.text is not None else None

        def show(new: Sequence[int]) -> None:
            shown = "".join(pieces.put(t) for t in new) if pieces else "".join(f"{t} " for t in new)
            print(shown, end="", flush=True)

        return show

    def _steps(self, reply: Iterator[list[int]]) -> Iterator[list[int]]:
        """The same items, timed; the first step of the first reply that is long enough is counted instead."""
        number = 0
        while True:
            # The first step behind a prompt, which may still have to compile kernels for its number of tokens.
            counts = number == 1 and self.costs.counters is None
            started = time.perf_counter()
            with _counting(self.model) if counts else contextlib.nullcontext() as counters:
                new = next(reply, None)
            seconds = time.perf_counter() - started
            if new is None:
                return
            if number == 0:
                self.costs.prefill_s += seconds
            elif counts:
                self.costs.counters, self.costs.counted_tokens = counters, len(new)
            else:
                self.costs.steps.append((seconds, len(new)))
            number += 1
            yield new


def _counting(model: Model) -> AbstractContextManager[Counters]:
    """Counts launches and waits: on a GPU from the driver's records, on a CPU what would be launched on a GPU. The
    backend of the kernels knows them by name."""
    counting_of: AbstractContextManager[Counters]
    if model.ops.bound is not None:
        counting_of = model.ops.bound.backend.count()
    elif model.device.type == "cuda":
        from backends.cuda import gpu_arch

        counting_of = backends.get("cuda", arch=gpu_arch() or "", **_index(model.device)).count()
    else:
        counting_of = _counted()
    return counting_of


@contextlib.contextmanager
def _counted() -> Iterator[Counters]:
    counters = Counters()
    with counting(counters):
        yield counters


def _numbers(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    bad = [w for w in words if not w.isdigit()]
    if bad or not words:
        raise InputError(f"prompt: {bad[0]!r} is no token id" if bad else "prompt: 'ids:' without a token id")
    return [int(w) for w in words]


def _found(
    options: argparse.Namespace,
    talk: _Talk,
    replies: list[list[int]],
    folder: Path,
    arch: str,
    on: str,
    activations: str,
    load_s: float,
) -> dict[str, Any]:
    """Everything that the report holds, as plain data."""
    model, costs, tally = talk.model, talk.costs, talk.session.tally
    drafts = options.drafts or 0
    per_step = 1 + (tally.accepted / tally.steps if tally.steps else 0.0)
    traffic = step_traffic(
        model.weights, model.config, talk.cache, talk.cache.length(talk.session.sequence), drafts=drafts
    )
    counters = costs.counters
    counted = max(costs.counted_tokens, 1)
    stop = None if options.ignore_eos else model.config.eos_token_id
    return {
        "schema": 1,
        "command": " ".join(["run_decode.py", *sys.argv[1:]]),
        "model": {
            "config": options.config or "of the checkpoint",
            "checkpoint": str(folder),
            "precision": options.precision,
            "activations": activations,
            "kinds": list(model.config.kinds),
        },
        "device": {"name": str(model.device), "arch": arch, "evidence": on},
        "turns": [
            {
                "prompt_tokens": len(ids),
                "ids": new,
                "text": talk.text.decode(new) if talk.text else None,
                "ended_by": "eos" if new[-1] == stop else "max_new",
            }
            for ids, new in zip(talk.prompts, replies, strict=True)
        ],
        "sampling": {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed},
        "tokens": {"prefilled": tally.prefilled, "reused": tally.reused, "new": tally.new},
        "mtp": {"drafts": drafts, "drafted": tally.drafted, "accepted": tally.accepted, "tokens_per_step": per_step},
        "seconds": {"load": load_s, "prefill": costs.prefill_s, "decode": costs.seconds, "timed_tokens": costs.tokens},
        "tokens_per_second": costs.tokens / costs.seconds if costs.seconds else None,
        "per_token": {
            "launches": counters.launches / counted if counters else None,
            "kernels": len(counters.kernels) / counted if counters else None,
            "syncs": counters.syncs / counted if counters else None,
            "bytes": traffic.per_token(per_step),
        },
        "memory": _memory(model, talk),
        "ops": [vars(row) for row in model.ops.rows],
    }


def _memory(model: Model, talk: _Talk) -> dict[str, Any]:
    """Bytes held, and the most there ever were: of the device, or of the process."""
    peak = (
        torch.cuda.max_memory_allocated(model.device)
        if model.device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    packed = model.ops.packed_nbytes
    return {"weights": model.weights.nbytes, "packed": packed, "cache": talk.cache.nbytes, "peak": peak}
