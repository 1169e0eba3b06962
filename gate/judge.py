"""One case, judged: inputs, kernel, oracle, comparison, repeats, counts and wrong variants, in this order.

The first step that fails ends the case and names itself. Runs in a process of its own (`gate.server`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gate import budgets, variants
from gate.compare import as_bytes, rounded, same_bits, unravel
from gate.device import Device, storage_bytes
from gate.job import Job
from gate.limits import Reference, judge_output
from gate.result import CaseResult
from gate.stage import Stage, Stop, Tensors
from gate.status import OF_TOOL

# What ends a case before there is a kernel that could run once more.
_NOTHING_TO_RUN = ("contract_error", "compile_error", "unknown_instruction")


class Judge:
    """The steps of one case. `found` collects the fields of the result, `doing` the steps that were entered.

    `cache`, if given, is a folder for compiled kernels that replaces the usual one.
    """

    def __init__(self, job: Job, root: Path, emit: Callable[[str], None], cache: Path | None = None) -> None:
        self.job = job
        self.cache = cache
        self.root = root
        self.doing: list[str] = []
        self.emit = emit
        self.device: Device | None = None
        self.kernel: _Kernel | None = None
        self.references: dict[str, Reference] = {}
        self.seconds: dict[str, float] = {}
        self.found: dict[str, Any] = {"evidence": "oracle only", "seconds": self.seconds}

    def judge(self) -> CaseResult:
        """Run every step and give the result; never raises for what a stage or kernel does wrong."""
        started = time.perf_counter()
        end: dict[str, Any] = {"status": "pass"}
        try:
            self._steps()
        except Stop as stop:
            end = {"status": stop.status, "step": self.doing[-1], "message": str(stop), "tail": stop.tail}
        if self.job.sanitize and end["status"] not in _NOTHING_TO_RUN:
            end = self._sanitized(end)
        self.seconds["total"] = time.perf_counter() - started
        if self.device is not None:
            self.found.setdefault("cost", self.device.cost())
            self.found["counts"] = {"compiled": len(self.device.compiled), "built": self.device.built} | self.found.get(
                "counts", {}
            )
            self.seconds["compile"] = self.device.compile_seconds
        names = ("gate", "case", "seed", "arch", "on", "mutant", "digest")
        about = {name: getattr(self.job, name) for name in names}
        return CaseResult.model_validate({**self.found, **about, **end})

    def _enter(self, step: str) -> None:
        self.doing.append(step)
        self.emit(step)

    def _steps(self) -> None:
        self._enter("import")
        if self.job.on != "oracle":
            self.device = self._open()
        stage = Stage(self.job, self.root)
        self._enter("inputs")
        inputs = stage.tensors("inputs", stage.case, rng(self.job))
        if self.device is None:
            self._without_kernel(stage, inputs)
        else:
            self._with_kernel(stage, inputs, self.device)

    def _open(self) -> Device:
        try:
            device = Device(self.job.on, self.job.arch, self._enter, cache=self.cache)
        except Exception as error:
            raise Stop(
                "runtime_error", f"backend {self.job.on} {self.job.arch}: {type(error).__name__}: {error}"
            ) from None
        self.found["evidence"] = device.evidence
        return device

    def _without_kernel(self, stage: Stage, inputs: Tensors) -> None:
        """--oracle-only: the oracle itself, rounded to the output's dtype, must pass; every variant must not."""
        references = self._references(stage, inputs, None)
        self._enter("compare")
        self.found["outputs"] = {}
        for name, reference in references.items():
            verdict = judge_output(rounded(reference.want, reference.plain.dtype), reference, explain=False)
            self.found["outputs"][name] = verdict.result
            if verdict.status != "pass":
                text = f"no kernel can pass: rounding the oracle to {verdict.result.dtype} gives {verdict.message}"
                raise Stop("contract_error", f"{stage.place('limits')}: {text}")
        self._variants(stage, inputs, references)

    def _with_kernel(self, stage: Stage, inputs: Tensors, device: Device) -> None:
        kernel = self.kernel = _Kernel(stage, device, inputs, self._enter, self.doing)
        outputs = kernel.run("in_order")
        self.found["cost"] = device.cost()
        self.seconds["run"] = kernel.seconds - device.compile_seconds
        self._enter("unchanged")
        kernel.inputs_unchanged()
        references = self._references(stage, inputs, outputs)
        self._enter("compare")
        self._compare(stage, inputs, outputs, references)
        self._repeat(kernel, device, outputs)
        self._enter("counts")
        breach = budgets.check(self.job, device, kernel, self.found)
        if breach:
            self.doing.append("counts")
            raise Stop(*breach)
        if self.job.mutant is None:
            self._other_schedules(kernel, device, outputs)
            self._variants(stage, inputs, references)
            self._all_fields_used(stage)

    def _references(self, stage: Stage, inputs: Tensors, outputs: Tensors | None) -> dict[str, Reference]:
        """The oracles that the limits ask for, and plain torch; all with the same output names as run()."""
        self._enter("oracle")
        started = time.perf_counter()
        kinds = sorted({limits.get("against", "ideal") for limits in self.job.limits.values()})
        wants = {kind: stage.tensors("oracle", inputs, stage.case, kind) for kind in kinds}
        plain = stage.tensors("plain", inputs, stage.case)
        self.seconds["oracle"] = time.perf_counter() - started
        names = set(wants[kinds[0]])
        others: dict[str, Tensors] = {f"oracle({kind})": want for kind, want in wants.items()} | {"plain()": plain}
        others |= {"run()": outputs} if outputs is not None else {}
        for function, given in others.items():
            if set(given) != names:
                ours, theirs = ", ".join(sorted(names)), ", ".join(sorted(given))
                raise Stop(
                    "contract_error", f"{stage.file}: oracle() returned outputs {ours}; {function} returned {theirs}"
                )
        self._limits_fit(stage, names)
        references = {}
        for name, limits in self.job.limits.items():
            want = wants[limits.get("against", "ideal")][name]
            if want.shape != plain[name].shape:
                text = f"oracle() gives {name} the shape {tuple(want.shape)}, plain() {tuple(plain[name].shape)}"
                raise Stop("contract_error", f"{stage.file}: {text}")
            references[name] = Reference(name, want, plain[name], limits)
        self.references = references
        return references

    def _limits_fit(self, stage: Stage, names: set[str]) -> None:
        gate, place = self.job.gate, stage.place("limits")
        for name in sorted(names - set(self.job.limits)):
            raise Stop("contract_error", f"{place}: {gate} has output '{name}' without a limit")
        for name in sorted(set(self.job.limits) - names):
            text = f"{gate} has a limit for '{name}', which is no output; outputs: {', '.join(sorted(names))}"
            raise Stop("contract_error", f"{place}: {text}")

    def _compare(self, stage: Stage, inputs: Tensors, outputs: Tensors, references: dict[str, Reference]) -> None:
        explain = self.job.mutant is None
        verdicts = {name: judge_output(outputs[name], ref, explain=explain) for name, ref in references.items()}
        self.found["outputs"] = {name: v.result for name, v in verdicts.items()}
        failed = [name for name, v in verdicts.items() if v.status != "pass"]
        if not failed:
            return
        status = verdicts[failed[0]].status
        if explain and status in ("wrong_values", "not_finite"):
            try:
                known = variants.wrong(stage, inputs, references)
                self._rejected(known, references)
                self.found["looks_like"] = variants.looks_like(stage, known, outputs, references, failed)
            except Stop as stop:
                # the kernel's failure is the news; the stage's own mistake is only noted
                self.found["notes"] = [f"looks like: {stop}"]
        raise Stop(status, "\n".join(str(verdicts[name].message) for name in failed))

    def _repeat(self, kernel: _Kernel, device: Device, first: Tensors) -> None:
        """The same bits: `repeat` runs in all, the last one completing asynchronous work as late as it may."""
        total = max(self.job.repeat, 2) if self.job.mutant is None else 2
        policies = ["in_order"] * (total - 2) + (["latest"] if device.emulated else ["in_order"])
        used = sorted({"in_order", *policies}) if device.emulated else []
        self.found |= {"repeats": total, "policies": used, "repeat_equal": False}
        for number, policy in enumerate(policies, start=2):
            again = kernel.run(policy)
            self._enter("repeat")
            which = f"run {number}" + (f" (asynchronous work completing {policy})" if policy == "latest" else "")
            said = _other_bits(first, again)
            if said:
                raise Stop("not_repeatable", f"{which} {said}")
        self.found["repeat_equal"] = True

    def _other_schedules(self, kernel: _Kernel, device: Device, first: Tensors) -> None:
        """--schedules, --replay: what the first run gave, under other schedules too."""
        if not device.emulated or not (self.job.schedules or self.job.replay):
            return
        from gate.schedules import Explorer

        started = time.perf_counter()
        try:
            Explorer(self.job, self.root, kernel, device, lambda again: _other_bits(first, again), self.found).explore()
        finally:
            self._enter("schedules")
            self.seconds["schedules"] = time.perf_counter() - started

    def _sanitized(self, end: dict[str, Any]) -> dict[str, Any]:
        """--sanitize: one more run, with checkers. What the case ended in stays; findings alone make it fail, too."""
        if self.kernel is None or self.device is None or not self.device.emulated:
            return end
        from gate.sanitize import sanitize

        self._enter("sanitize")
        report, stopped = sanitize(self.job.sanitize, self.kernel, self.device, self.root)
        self.found["sanitizers"] = report
        self.seconds["sanitize"] = report.seconds
        if end["status"] != "pass":
            return end
        if report.findings:
            first = next(f for tool in OF_TOOL for f in report.findings if f.tool == tool)
            others = len(report.findings) + report.more - 1
            message = f"{first.tool}: {first.kind}: {first.memory}" + (f" (and {others} more)" if others else "")
            return {"status": OF_TOOL[first.tool], "step": "sanitize", "message": message}
        if stopped is not None:
            return {"status": stopped.status, "step": "sanitize", "message": str(stopped), "tail": stopped.tail}
        return end

    def _variants(self, stage: Stage, inputs: Tensors, references: dict[str, Reference]) -> None:
        self._enter("variants")
        self._rejected(variants.wrong(stage, inputs, references), references)

    def _rejected(self, known: dict[str, Tensors], references: dict[str, Reference]) -> None:
        """Which known mistakes the limits reject on this case, and which it is blind to."""
        statuses = variants.statuses(known, references)
        self.found["variants"] = statuses
        self.found["blind_to"] = [name for name, status in statuses.items() if status == "pass"]

    def _all_fields_used(self, stage: Stage) -> None:
        unused = stage.case.never_asked()
        if unused:
            text = f"case '{self.job.case}' has the field '{unused[0]}', which no function of {stage.file} asks for"
            raise Stop("contract_error", f"{stage.place('case')}: {text}")


class _Kernel:
    """run() on fixed inputs; remembers their hashes, the counters of every run, and how long the last run took."""

    def __init__(
        self, stage: Stage, device: Device, inputs: Tensors, enter: Callable[[str], None], doing: list[str]
    ) -> None:
        self.stage = stage
        self.device = device
        self.x = device.to_device(inputs)
        self.counters: list[Any] = []
        self.seconds = 0.0
        self._enter = enter
        self._doing = doing
        self._before = {name: _hash(t) for name, t in self.x.items()}

    def run(self, policy: str, seed: int = 0, schedules: Sequence[Any] = ()) -> Tensors:
        """One call; gives copies on the CPU, and poisons what the kernel returned.

        So a kernel that hands out an earlier result fails: its next output is 0xFF bytes.
        """
        self._enter("run")
        self.device.set_policy(policy, seed, schedules)
        self.device.begin()
        started = time.perf_counter()
        with self.device.backend.count() as counters:
            outputs = self.call()
        self.seconds = time.perf_counter() - started
        self.counters.append(counters)
        copies = {name: t.detach().to("cpu", copy=True) for name, t in outputs.items()}
        inputs = {t.untyped_storage().data_ptr() for t in self.x.values()}
        for t in outputs.values():
            if t.untyped_storage().data_ptr() not in inputs:
                storage_bytes(t).fill_(0xFF)
        return self.stage.read(copies)

    def call(self) -> Tensors:
        """One call and nothing around it."""
        return self.stage.run(self.x, self.device.backend, self._doing)

    def inputs_unchanged(self) -> None:
        """Raises Stop if a byte, a shape or a name of the inputs is another than before the first run."""
        if set(self.x) != set(self._before):
            names = ", ".join(sorted(set(self.x) ^ set(self._before)))
            raise Stop("input_changed", f"run() changed the names of its inputs: {names}")
        changed = [name for name, t in self.x.items() if _hash(t) != self._before[name]]
        if changed:
            raise Stop("input_changed", f"run() changed its input {', '.join(changed)}")


def rng(job: Job) -> torch.Generator:
    """Seeded from stage, case id and seed: adding a case changes no other case's data."""
    digest = hashlib.sha256(f"{job.stage}/{job.case}/{job.seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _hash(tensor: Tensor) -> tuple[str, tuple[int, ...], str]:
    """Every byte of the storage, so that a write between the elements of a strided input counts too."""
    data = storage_bytes(tensor).cpu().numpy()
    return hashlib.blake2b(data.tobytes()).hexdigest(), tuple(tensor.shape), str(tensor.dtype)


def _other_bits(first: Tensors, again: Tensors) -> str | None:
    """What the outputs of two runs differ in; None if in nothing."""
    if set(again) != set(first):
        return f"returned {', '.join(again)}; run 1 {', '.join(first)}"
    for name, value in first.items():
        if not same_bits(value, again[name]):
            return f"gave other bits: {_difference(name, value, again[name])}"
    return None


def _difference(name: str, a: Tensor, b: Tensor) -> str:
    """What two tensors that should have the same bits differ in."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name} is {tuple(b.shape)} {b.dtype}, was {tuple(a.shape)} {a.dtype}"
    size = a.element_size()
    differs = (as_bytes(a).view(-1, size) != as_bytes(b).view(-1, size)).any(dim=1)
    at = ", ".join(str(i) for i in unravel(int(torch.nonzero(differs)[0]), tuple(a.shape)))
    return f"{int(differs.sum())} of {differs.numel()} elements of {name}, first {name}[{at}]"
