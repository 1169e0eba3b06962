"""A stage as the judge calls it: every mistake of the stage itself becomes a `contract_error` that names the function.

Only worker processes import this module.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gate.case import Case, MissingField
from gate.job import Job
from gate.stage_files import mutants_module

Tensors = dict[str, Tensor]

# The exceptions of `emulator.errors` that are more than a runtime error.
_EMULATOR_STATUS = {"Deadlock": "hang", "Watchdog": "timeout", "UnknownInstruction": "unknown_instruction"}
_TAIL_LINES = 20
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HERE = Path(__file__).parent


class Stop(Exception):
    """Ends a case: its status, the sentence that says why, and the last lines of what happened."""

    def __init__(self, status: str, message: str, tail: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.tail = tail


class Stage:
    """The functions of `stages/<name>.py` for one case."""

    def __init__(self, job: Job, root: Path) -> None:
        self.job = job
        self.root = root
        self.case = Case(job.case, job.fields)
        self.file = f"stages/{job.stage}.py"
        try:
            self.module: Any = importlib.import_module(f"stages.{job.stage}")
            self.mutant = self._find_mutant() if job.mutant is not None else None
        except Stop:
            raise
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "cutlass":
                text = "kernels need nvidia-cutlass-dsl (pip install -e .); --oracle-only works without it"
                raise Stop("compile_error", text) from None
            raise self.crash(error, f"{self.file} cannot be imported") from None
        except Exception as error:
            raise self.crash(error, f"{self.file} cannot be imported") from None

    def call(self, function: str, *args: Any) -> Any:
        """Call a function other than run(): whatever it raises is a mistake of the stage."""
        try:
            return getattr(self.module, function)(*args)
        except MissingField as error:
            raise self.missing(error) from None
        except Exception as error:
            text = f"{function}() raised {type(error).__name__}: {self.said(error)}"
            raise Stop("contract_error", f"{self.file}: {text}", tail(error)) from None

    def tensors(self, function: str, *args: Any) -> Tensors:
        """Call a function that returns named tensors."""
        return self.checked(function, self.call(function, *args))

    def checked(self, function: str, given: Any) -> Tensors:
        """`given`, if it is a mapping of names to tensors; it may not be empty."""
        if isinstance(given, Mapping) and given and all(isinstance(t, Tensor) for t in given.values()):
            return dict(given)
        shown = {k: type(v).__name__ for k, v in given.items()} if isinstance(given, Mapping) else type(given).__name__
        raise Stop("contract_error", f"{self.file}: {function}() must return a dict of tensors, returned {shown}")

    def launch(self, x: Tensors, backend: Any) -> Any:
        """run() as it is: of the mutant, if there is one, and with its own exceptions."""
        keywords = {} if self.mutant is None else {"mutant": self.mutant}
        return self.module.run(x, self.case, backend, **keywords)

    def names(self) -> dict[str, Any]:
        """What the stage calls tensor memory, warps and barriers (`names(case)`), for views; empty without."""
        return self.call("names", self.case) if hasattr(self.module, "names") else {}

    def run(self, x: Tensors, backend: Any, doing: list[str]) -> Tensors:
        """One call of run(); `doing[-1]` says whether a compile is under way when it raises."""
        try:
            outputs = self.launch(x, backend)
        except MissingField as error:
            raise self.missing(error) from None
        except Exception as error:
            raise self._classify(error, doing[-1]) from None
        return self.checked("run", outputs)

    def read(self, outputs: Tensors) -> Tensors:
        """Outputs on the CPU, and what the stage reads from them (`values(outputs, case)`, if it has one): the numbers
        that codes and scales stand for. It is no part of the run that is counted."""
        if getattr(self.module, "values", None) is None:
            return outputs
        return outputs | self.tensors("values", outputs, self.case)

    def missing(self, error: MissingField) -> Stop:
        """A field that the case does not have, at the place of the case."""
        return Stop("contract_error", f"{self.place('case')}: {self.said(error)}")

    def place(self, key: str) -> str:
        """`gates.yaml:line:column` of the case or of the limits."""
        return self.job.where.get(key, "gates.yaml")

    def said(self, error: BaseException) -> str:
        """The message of an exception without colours, with paths relative to the tree."""
        text = _ANSI.sub("", str(error)).replace(f"{self.root}/", "")
        return "\n".join(line for line in text.strip().splitlines() if line.strip())

    def crash(self, error: BaseException, what: str) -> Stop:
        """A runtime error with the last lines of its traceback."""
        return Stop("runtime_error", f"{what}: {type(error).__name__}: {self.said(error)}", tail(error))

    def _classify(self, error: Exception, doing: str) -> Stop:
        from emulator.errors import EmulatorError

        if isinstance(error, EmulatorError):
            names = [c.__name__ for c in type(error).__mro__]
            status = next((_EMULATOR_STATUS[name] for name in names if name in _EMULATOR_STATUS), None)
            text = self.said(error)
            if "ScheduleError" in names:
                return Stop("contract_error", f"--replay: {text}")
            return Stop(status or "runtime_error", text if status else f"{names[0]}: {text}")
        if doing == "compile":
            return Stop("compile_error", f"{type(error).__name__}: {self.said(error)}", tail(error))
        return self.crash(error, "run() raised")

    def _find_mutant(self) -> Any:
        name = self.job.mutant
        op = mutants_module(self.root, self.job.stage)
        if op is None:
            raise Stop("contract_error", f"no file of mutants/ is named like stage '{self.job.stage}' or its beginning")
        mutants = importlib.import_module(f"mutants.{op}").MUTANTS
        if name not in mutants:
            raise Stop("contract_error", f"mutants/{op}.py has no mutant '{name}'; it has {', '.join(sorted(mutants))}")
        return mutants[name]


def tail(error: BaseException) -> str:
    """The last lines of the traceback, from where it leaves the judge."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and Path(trace.tb_frame.f_code.co_filename).parent == _HERE:
        trace = trace.tb_next
    lines = _ANSI.sub("", "".join(traceback.format_exception(type(error), error, trace))).splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
