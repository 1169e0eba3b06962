"""One bench case, measured: inputs by the stage, clones of them to rotate over, the kernel's call in a graph, floors.

Only the worker imports this module.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gate.bench import timing
from gate.bench.clock import Clock
from gate.bench.plan import BenchJob
from gate.case import MissingField
from gate.compare import same_bits
from gate.formula import evaluate
from gate.job import Job
from gate.judge import rng
from gate.result import BenchResult
from gate.stage import Stage, Stop, Tensors, tail

Call = Callable[[], Any]


def measure(job: BenchJob, stage: Stage, backend: Any, clock: Clock) -> BenchResult:
    """Time one case; never raises for what a stage or kernel does wrong. The limits are judged elsewhere."""
    started = time.perf_counter()
    found: dict[str, Any] = {"evidence": str(backend.evidence), "status": "pass"}
    try:
        found |= _times(job, stage, backend, clock)
    except MissingField as error:
        stop = stage.missing(error)
        found |= {"status": stop.status, "message": str(stop)}
    except Stop as stop:
        found |= {"status": _status(stop.status), "message": str(stop), "tail": stop.tail}
    except Exception as error:
        text = f"{type(error).__name__}: {stage.said(error)}"
        found |= {"status": "runtime_error", "message": text, "tail": tail(error)}
    return about(job, found | {"seconds": time.perf_counter() - started})


def call_once(job: BenchJob, stage: Stage, backend: Any, device: torch.device) -> None:
    """The kernel's call and a wait, nothing timed: it compiles, and a profiler sees it."""
    timed(stage, inputs(job, stage, device), backend)()
    backend.synchronize()


def about(job: BenchJob, found: dict[str, Any]) -> BenchResult:
    """A result of `job`."""
    names = ("gate", "case", "arch", "bytes", "at_most", "at_most_us", "peers")
    return BenchResult.model_validate({name: getattr(job, name) for name in names} | found)


def judged_as(job: BenchJob) -> Job:
    """The same as a case of the judge, which stages are loaded for."""
    return Job(
        gate=job.gate,
        stage=job.stage,
        case=job.case,
        seed=job.seed,
        arch=job.arch,
        on="cuda",
        fields=job.fields,
        limits={},
        where=job.where,
    )


def inputs(job: BenchJob, stage: Stage, device: torch.device) -> Tensors:
    """The stage's inputs, made on the device itself: quantising a vocabulary's weights takes a CPU a minute."""
    generator = torch.Generator(device=device).manual_seed(rng(judged_as(job)).initial_seed())
    with torch.device(device):
        made = stage.tensors("inputs", stage.case, generator)
    return {name: tensor.to(device) for name, tensor in made.items()}


def timed(stage: Stage, x: Tensors, backend: Any) -> Call:
    """What is timed: bench(x, case, backend) of the stage if it has one, else run(). `run` may do more than the kernel
    does (put outputs side by side for the judge, copy what is changed in place)."""
    if getattr(stage.module, "bench", None) is None:
        return lambda: stage.launch(x, backend)
    call: Call = stage.call("bench", x, stage.case, backend)
    if not callable(call):
        raise Stop("contract_error", f"{stage.file}: bench() must return a function, returned {type(call).__name__}")
    return call


def rotated(x: Tensors, warm: list[str], count: int) -> list[Tensors]:
    """`count` sets of inputs: `x` and clones of it; those named in `warm` are shared."""
    return [x, *({n: t if n in warm else clone(t) for n, t in x.items()} for _ in range(count - 1))]


def clone(tensor: Tensor) -> Tensor:
    """A copy with the same strides."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _times(job: BenchJob, stage: Stage, backend: Any, clock: Clock) -> dict[str, Any]:
    x = inputs(job, stage, clock.device)
    unknown = [name for name in job.warm if name not in x]
    if unknown:
        text = f"warm: '{unknown[0]}' is no input of {stage.file}; inputs: {', '.join(x)}"
        raise Stop("contract_error", f"{stage.place('case')}: {text}")
    count, turns = timing.sets_for(job.bytes), timing.calls_for(job.bytes)
    kept: dict[int, Any] = {}
    timed(stage, x, backend)()
    _all_fields_used(stage)
    sets = [timed(stage, one, backend) for one in rotated(x, job.warm, count)]
    sample = clock.sample([_keeping(kept, i, sets[i % count]) for i in range(turns)])
    said = _other_bits(kept)
    del sets, x
    kept.clear()
    gc.collect()
    if said:
        raise Stop("not_repeatable", said)
    found = {"us": sample.us, "low_us": sample.low, "high_us": sample.high, "calls": turns, "sets": count}
    return found | _floor(job, clock) | {"canaries": _canaries(job, clock)}


def _all_fields_used(stage: Stage) -> None:
    unused = stage.case.never_asked()
    if unused:
        text = f"case '{stage.case.id}' has '{unused[0]}', which is no setting of a bench case and no field that"
        raise Stop("contract_error", f"{stage.place('case')}: {text} {stage.file} asks for")


def _keeping(kept: dict[int, Any], index: int, call: Call) -> Call:
    """`call`, its last result kept: outputs of a graph must be memory of their own, or writes stay in L2."""

    def keep() -> Any:
        kept[index] = call()
        return kept[index]

    return keep


def _other_bits(kept: Mapping[int, Any]) -> str | None:
    """What the first and the last call, on clones of the same inputs, differ in."""
    first, last = kept[min(kept)], kept[max(kept)]
    if not isinstance(first, Mapping) or not isinstance(last, Mapping):
        return None
    torch_outputs = [name for name in first if isinstance(first[name], Tensor)]
    other = [name for name in torch_outputs if not same_bits(first[name], last[name])]
    return f"call {max(kept) + 1} of a graph gave other bits of {other[0]} than call 1, on a clone" if other else None


def _floor(job: BenchJob, clock: Clock) -> dict[str, Any]:
    """The larger of what the same bytes take, and what they take at the rate of a large copy."""
    rate = clock.copy_rate()
    own = (clock.read_us(job.bytes), "cold read") if job.floor == "read" else (clock.copy_us(job.bytes), "copy")
    floor, name = max(own, (job.bytes / rate * 1e6, "copy rate"))
    return {"floor_us": floor, "floor_of": name, "copy_tb_s": rate / 1e12}


def _canaries(job: BenchJob, clock: Clock) -> dict[str, float]:
    if job.canaries is None:
        return {}
    m, n, k = (int(evaluate(f"sum({name})", job.fields)) for name in ("m", "n", "k"))
    return clock.products_us(job.canaries, m, n, k, int(job.fields.get("weights", 1)))


def _status(status: str) -> str:
    """A status of the judge among those of a bench."""
    return status if status in ("contract_error", "not_repeatable") else "runtime_error"
