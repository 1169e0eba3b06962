"""`gates.yaml` to a checked `Gates`: first its shape, all problems at once; then its cross-references, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gate import formula
from gate.document import Document, Place, read
from gate.errors import BadFile, Problem, UsageError, did_you_mean
from gate.schema import (
    METRICS,
    Bench,
    BenchCase,
    Case,
    Defaults,
    Gate,
    GatesFile,
    Memory,
    OutputLimits,
    Resources,
    Roofline,
)

FILE = "gates.yaml"


@dataclass(frozen=True)
class Gates:
    """The gates in ladder order (a gate after all that it needs), with their defaults applied on request."""

    file: GatesFile
    document: Document
    root: Path
    order: tuple[str, ...]

    def __getitem__(self, name: str) -> Gate:
        return self.file.gates[name]

    def stage(self, name: str) -> str:
        """The module of `stages/` that the gate judges."""
        return self[name].stage or name

    def seeds(self, name: str) -> list[int]:
        """Seeds of the gate: its own, else the defaults."""
        return self[name].seeds or self.file.defaults.seeds

    def repeat(self, name: str) -> int:
        """How many runs must give the same bits."""
        return self[name].repeat or self.file.defaults.repeat

    def timeout_s(self, name: str) -> float:
        """Seconds after which a case is killed."""
        return self[name].timeout_s or self.file.defaults.timeout_s

    def place(self, path: tuple[str | int, ...], *, key: bool = False) -> str:
        """`gates.yaml:line:column` of a path."""
        place: Place = self.document.place(path, key=key)
        return f"{FILE}:{place.line}:{place.column}"


def load(root: Path) -> Gates:
    """Read and check `root/gates.yaml`.

    Raises:
        UsageError: if there is no such file.
        BadFile: with every problem of shape, else with every problem of the cross-references.
    """
    path = root / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no {FILE} in {root}") from None
    except UnicodeDecodeError as error:
        raise BadFile([Problem(FILE, 1, 1, f"not UTF-8 text: {error.reason} at byte {error.start}")]) from None
    return parse(text, root)


def parse(text: str, root: Path) -> Gates:
    """Check the text of a `gates.yaml`; `root` is the folder that its names refer to. Raises as `load` does."""
    document = read(text, FILE)
    if not isinstance(document.data, dict):
        raise BadFile(
            [*document.problems, Problem(FILE, 1, 1, "the file must be a mapping with 'version' and 'gates'")]
        )
    problems = list(document.problems) + _missing_for_state(document)
    try:
        file = GatesFile.model_validate(document.data)
    except ValidationError as error:
        problems += [_translate(document, detail) for detail in error.errors()]
        raise BadFile(problems) from None
    if problems:
        raise BadFile(problems)
    problems = _cross_references(document, file)
    if problems:
        raise BadFile(problems)
    return Gates(file, document, root, _ladder(file))


def _missing_for_state(document: Document) -> list[Problem]:
    """Keys that a gate needs unless it is only planned, without cases and limits: pydantic would report them after all
    else is right."""
    gates = document.data.get("gates")
    found = []
    for name, entry in gates.items() if isinstance(gates, dict) else ():
        if isinstance(entry, dict):
            given = [key for key in ("cases", "limits") if key in entry]
            needed = ("cases", "limits") if given or entry.get("state") != "planned" else ()
            for key in needed:
                if key not in given:
                    found.append(_missing(document, ("gates", name), key))
    return found


def _missing(document: Document, parent: tuple[str | int, ...], key: str | int) -> Problem:
    place = document.place(parent, key=True)
    dotted = ".".join(str(part) for part in (*parent, key))
    return Problem(FILE, place.line, place.column, f"{dotted}: missing key '{key}'")


_MODEL_AT: dict[str, type[BaseModel]] = {
    "cases": Case,
    "limits": OutputLimits,
    "memory": Memory,
    "resources": Resources,
    "roofline": Roofline,
    "bench": Bench,
}


def _known_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that are allowed beside the last part of `path`."""
    if len(path) == 1:
        return list(GatesFile.model_fields)
    if path[0] == "defaults":
        return list(Defaults.model_fields)
    if len(path) == 3:
        return list(Gate.model_fields)
    model = _MODEL_AT.get(str(path[2]))
    return list(model.model_fields) if model else []


def _translate(document: Document, detail: ErrorDetails) -> Problem:
    """One pydantic error at its place in the file, in plain words."""
    path = tuple(part for part in detail["loc"] if part != "[key]")
    is_key = detail["loc"] != path
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "missing":
        return _missing(document, path[:-1], path[-1])
    if kind == "extra_forbidden":
        known = _known_keys(path)
        text = f"unknown key '{path[-1]}'{did_you_mean(str(path[-1]), known)}"
        return document.problem(path, text if "did you" in text else f"{text}; allowed: {', '.join(known)}", key=True)
    if is_key or kind == "string_pattern_mismatch":
        text = (
            f"'{value}' is no name: small letters, digits and '_' only, a letter first ({context.get('pattern', '')})"
        )
        return document.problem(path, text, key=is_key)
    return document.problem(path, _words(kind, context, value, detail["msg"]))


def _words(kind: str, context: dict[str, Any], value: Any, message: str) -> str:
    """What pydantic means, with the value and what is allowed."""
    shown = f"got {value!r}"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        return f"{value!r} is not allowed; allowed: {expected}"
    if kind == "value_error":
        return str(context.get("error", message))
    bounds = {"greater_than_equal": ("at least", "ge"), "greater_than": ("greater than", "gt")}
    bounds |= {"less_than_equal": ("at most", "le"), "less_than": ("less than", "lt")}
    if kind in bounds:
        word, key = bounds[kind]
        return f"must be {word} {context[key]:g}, {shown}"
    if kind in ("string_too_short", "string_too_long"):
        limit = context.get("min_length", context.get("max_length"))
        return f"must be at {'least' if 'short' in kind else 'most'} {limit} characters long, has {len(value)}"
    if kind in ("too_short", "too_long"):
        return "must not be empty"
    types = {"int": "a whole number", "float": "a number", "string": "a text", "list": "a list", "dict": "a mapping"}
    types |= {"bool": "true or false", "model": "a mapping"}
    word = types.get(kind.removesuffix("_type").removesuffix("_parsing"), "")
    return f"must be {word}, {shown}" if word else f"{message}, {shown}"


def _cross_references(document: Document, file: GatesFile) -> list[Problem]:
    problems: list[Problem] = []
    for name, gate in file.gates.items():
        problems += _needs(document, file, name, gate)
        problems += _cases(document, name, gate)
        problems += _bench(document, name, gate.bench) if gate.bench else []
    return problems or _cycles(document, file)


def _needs(document: Document, file: GatesFile, name: str, gate: Gate) -> list[Problem]:
    problems = []
    for i, needed in enumerate(gate.needs):
        path = ("gates", name, "needs", i)
        place = document.place(path)
        if needed == name:
            text = "a gate cannot need itself"
        elif needed not in file.gates:
            text = f"no gate '{needed}'{did_you_mean(needed, file.gates)}"
        elif needed in gate.needs[:i]:
            text = f"'{needed}' is listed twice"
        elif gate.state == "gated" and file.gates[needed].state == "planned":
            text = f"'{needed}' is only planned, so a gated gate cannot need it"
        else:
            continue
        problems.append(Problem(FILE, place.line, place.column, f"gates.{name}.needs: {text}"))
    return problems


def _cases(document: Document, name: str, gate: Gate) -> list[Problem]:
    problems = []
    seen: set[str] = set()
    for i, case in enumerate(gate.cases or []):
        path = ("gates", name, "cases", i)
        if case.id in seen:
            problems.append(document.problem((*path, "id"), f"case id '{case.id}' is used twice"))
        seen.add(case.id)
        if gate.roofline:
            problems += _formulas(document, name, gate.roofline, case)
    for output, limits in (gate.limits or {}).items():
        if not limits.metrics():
            text = f"has no limit; give one of {', '.join(METRICS)}"
            problems.append(document.problem(("gates", name, "limits", output), text))
    return problems


def _bench(document: Document, name: str, bench: Bench) -> list[Problem]:
    """Ids, formulas and the sizes that canaries need."""
    problems, seen = [], set()
    for i, case in enumerate(bench.cases):
        path = ("gates", name, "bench", "cases", i)
        if case.id in seen:
            problems.append(document.problem((*path, "id"), f"case id '{case.id}' is used twice"))
        seen.add(case.id)
        problems += _bytes(document, name, i, bench, case)
        for key in ("m", "n", "k") if bench.canaries else ():
            try:
                formula.evaluate(f"sum({key})", case.fields())
            except ValueError:
                text = (
                    f"canaries need the field '{key}' of case '{case.id}' as a number, got {case.fields().get(key)!r}"
                )
                problems.append(document.problem(path, text))
    return problems


def _bytes(document: Document, name: str, index: int, bench: Bench, case: BenchCase) -> list[Problem]:
    """What is wrong with the formula of one case."""
    of_case: tuple[str | int, ...] = ("gates", name, "bench", "cases", index)
    text = bench.of(case, "bytes")
    if text is None:
        return [document.problem(of_case, f"case '{case.id}' has no 'bytes', and neither has the bench")]
    path = (*of_case, "bytes") if case.bytes is not None else ("gates", name, "bench", "bytes")
    try:
        if formula.evaluate(text, case.fields()) >= 1:
            return []
        said = f"'{text}' is less than one byte"
    except (ValueError, ZeroDivisionError) as error:
        said = str(error)
    return [document.problem(path, f"case '{case.id}': {said}")]


def _formulas(document: Document, name: str, roofline: Roofline, case: Case) -> list[Problem]:
    problems = []
    for key in ("bytes", "operations"):
        try:
            formula.evaluate(getattr(roofline, key), case.fields())
        except (ValueError, ZeroDivisionError) as error:
            path = ("gates", name, "roofline", key)
            problems.append(document.problem(path, f"case '{case.id}': {error}"))
    return problems


def _cycles(document: Document, file: GatesFile) -> list[Problem]:
    """One problem per cycle of `needs`, at the first gate of the cycle."""
    problems = []
    done: set[str] = set()
    for start in file.gates:
        trail: list[str] = []

        def walk(name: str, trail: list[str] = trail) -> list[str] | None:
            if name in trail:
                return [*trail[trail.index(name) :], name]
            if name in done:
                return None
            trail.append(name)
            for needed in file.gates[name].needs:
                cycle = walk(needed)
                if cycle:
                    return cycle
            trail.pop()
            done.add(name)
            return None

        cycle = walk(start)
        if cycle:
            problems.append(
                document.problem(("gates", cycle[0], "needs"), f"goes in a circle: {' → '.join(cycle)}", key=True)
            )
            done.update(cycle)
    return problems


def _ladder(file: GatesFile) -> tuple[str, ...]:
    """Gate names in file order, each moved behind what it needs."""
    order: dict[str, None] = {}

    def place(name: str) -> None:
        if name not in order:
            for needed in file.gates[name].needs:
                place(needed)
            order[name] = None

    for name in file.gates:
        place(name)
    return tuple(order)
