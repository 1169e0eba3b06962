"""The command line's flags, parsed with argparse."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from gate.errors import UsageError
from gate.status import OF_TOOL

TOOLS = tuple(OF_TOOL)

_EPILOG = """exit codes
  0  every selected gate that must pass did      3  internal error of the tool
  1  a gate failed, hung, timed out, crashed,    4  usage, gates.yaml or stage contract
     or a building gate passed                   5  nothing selected, or all of it skipped
  2  interrupted (the report is written)

examples
  python run_gate.py --list                      the whole pipeline, and what is proven
  python run_gate.py fmha_multitile -k n256      cases whose id contains n256
  python run_gate.py fmha_multitile --falsify    also run every mutant: each must be rejected
  python run_gate.py --lf -x                     what failed last time, stop at the first failure
  python run_gate.py nvfp4_linear --bench        time the bench cases on this GPU
"""

FAIL_SLOWER = 15.0
_NO_STEPS = "a GPU reports no steps"
_OWN_SCHEDULE = "a GPU schedules by itself"


@dataclass(frozen=True)
class _RunsKernels:
    """A flag that runs kernels in a way of its own, and what it cannot stand beside.

    emulator: why a GPU will not do; empty if it will. every_case: it has to run the cases that --resume leaves out.
    """

    flag: str
    given: Callable[[argparse.Namespace], bool]
    emulator: str = ""
    every_case: bool = True


_RUN_KERNELS = (
    _RunsKernels("--falsify", lambda options: options.falsify, every_case=False),
    _RunsKernels("--schedules", lambda options: options.schedules is not None, _OWN_SCHEDULE),
    _RunsKernels("--replay", lambda options: options.replay is not None, _OWN_SCHEDULE),
    _RunsKernels("--sanitize", lambda options: options.sanitize is not None, _NO_STEPS),
    _RunsKernels("--view", lambda options: bool(options.view), _NO_STEPS),
    _RunsKernels("--debug trace", lambda options: options.debug == "trace", _NO_STEPS),
    _RunsKernels("--bench", lambda options: options.bench),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (run_gate.py --help lists the flags)")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The flags as a namespace.

    Raises:
        UsageError: for an unknown flag, a wrong value, or flags that exclude each other.
    """
    parser = _build()
    options = parser.parse_args(argv)
    _check_kernel_flags(options)
    _check_bench(options)
    actions = [f"--{name}" for name in ("list", "check", "new", "notebook") if getattr(options, name)]
    if len(actions) > 1:
        raise UsageError(f"{' and '.join(actions)} are different actions: give one of them")
    return options


def _check_kernel_flags(options: argparse.Namespace) -> None:
    """What the flags that run kernels go with."""
    if options.oracle_only and options.on != "auto":
        raise UsageError(f"--oracle-only runs no kernel, so --on {options.on} has no meaning")
    for rule in (rule for rule in _RUN_KERNELS if rule.given(options)):
        if options.oracle_only:
            raise UsageError(f"{rule.flag} runs kernels, --oracle-only runs none: give one of them")
        if rule.emulator and options.on == "gpu":
            raise UsageError(f"{rule.flag} needs the emulator: {rule.emulator}")
        if rule.every_case and options.resume:
            raise UsageError(f"--resume leaves out cases that pass; {rule.flag} has to run them: give one of them")
        if options.bench and rule.flag != "--bench":
            what = "needs the emulator, --bench a GPU" if rule.emulator else "judges kernels, --bench times them"
            raise UsageError(f"{rule.flag} {what}: give one of them")
    if options.schedules and options.replay:
        raise UsageError("--schedules looks for a schedule, --replay runs one: give one of them")


def _check_bench(options: argparse.Namespace) -> None:
    """What goes with --bench, and what only goes with it."""
    if not options.bench:
        for flag in ("save", "compare"):
            if getattr(options, flag) is not None:
                raise UsageError(f"--{flag} is for times: give --bench too")
    if options.fail_slower is not None and options.compare is None:
        raise UsageError("--fail-slower says how much slower than --compare NAME: give that too")
    if options.bench and options.on == "emulator":
        raise UsageError("--bench needs a GPU: the emulator has no time")
    if options.bench and options.debug:
        raise UsageError(f"--debug {options.debug} shows a case that is judged: leave --bench out")
    if options.bench and options.lf:
        raise UsageError("--lf goes by the ledger, which holds no times: name the cases of --bench with -k")


def _build() -> _Parser:
    parser = _Parser(
        prog="run_gate.py",
        description="Judge stages: each gate of gates.yaml runs a kernel against its oracle and can fail.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "gates", nargs="*", metavar="GATE", help="gates to run; a prefix is enough if it is unique (default: all gated)"
    )
    actions = parser.add_argument_group("actions instead of running")
    actions.add_argument(
        "--list", action="store_true", help="gates, state, arch, cases and what the last results prove"
    )
    actions.add_argument("--check", action="store_true", help="validate gates.yaml, stages and imports; run nothing")
    actions.add_argument("--new", metavar="NAME", help="write stages/NAME.py and a `building` entry of gates.yaml")
    actions.add_argument(
        "--notebook", action="store_true", help="write notebooks/stage_GATE.ipynb of the gates named, or open it"
    )

    select = parser.add_argument_group("selection")
    select.add_argument("-k", metavar="EXPR", help="cases whose id matches: -k 'n256 and not sm90'")
    select.add_argument("--lf", action="store_true", help="only the cases that failed last time")
    select.add_argument("--resume", action="store_true", help="leave out cases that pass already and are not stale")
    select.add_argument(
        "--arch", choices=["sm90", "sm100"], help="only this architecture (default: all that the gate names)"
    )
    select.add_argument("--seed", type=_natural, metavar="N", help="only this seed")

    _how(parser)
    _bench(parser)
    _output(parser)
    return parser


def _how(parser: _Parser) -> None:
    how = parser.add_argument_group("how to run")
    how.add_argument(
        "--on",
        choices=["auto", "emulator", "gpu"],
        default="auto",
        help="auto: the GPU if it has that arch, else the emulator",
    )
    how.add_argument(
        "--falsify",
        action="store_true",
        help="also run the mutants of falsified_by: each must be rejected for its reason",
    )
    how.add_argument(
        "--oracle-only", action="store_true", help="oracle against its own wrong variants: no kernel, no compile"
    )
    how.add_argument(
        "--schedules",
        type=_positive,
        metavar="N",
        help="also run N random schedules a case: same bits, no hang; else the shortest schedule that shows it",
    )
    how.add_argument(
        "--sanitize",
        nargs="?",
        const=TOOLS,
        type=_tools,
        metavar="TOOLS",
        help=f"also run every case with checkers, all or some of {','.join(TOOLS)}: a finding is a failure",
    )
    how.add_argument("--replay", metavar="FILE", help="also run the schedule that --schedules has left in FILE")
    how.add_argument("-x", dest="stop", action="store_true", help="stop at the first failure")
    how.add_argument(
        "-j", type=_positive, metavar="N", dest="jobs", help="cases at once (default: the cores of this machine)"
    )
    how.add_argument("--timeout", type=_seconds, metavar="S", help="seconds per case, whatever gates.yaml says")
    how.add_argument(
        "--debug",
        choices=["shapes", "ptx", "trace"],
        help="print shapes at trace time, keep the PTX of every kernel, or write a trace of every case "
        "(ui.perfetto.dev, python -m emulator.views)",
    )
    how.add_argument(
        "--view",
        type=_views,
        metavar="NAMES",
        help="draw every case once more: timeline,stages,tmem,hot,errors (text here, figures in the case's folder)",
    )


def _bench(parser: _Parser) -> None:
    bench = parser.add_argument_group("times")
    bench.add_argument(
        "--bench",
        action="store_true",
        help="time the bench cases on a GPU, instead of judging: beyond a limit is a failure (docs/bench.md)",
    )
    bench.add_argument("--save", type=_name, metavar="NAME", help="keep the times as build/bench/NAME.json")
    bench.add_argument(
        "--compare", type=_name, metavar="NAME", help="compare with the times kept under NAME: slower is a failure"
    )
    bench.add_argument(
        "--fail-slower",
        type=_percent,
        metavar="P%",
        help=f"how much slower than --compare is too slow (default: {FAIL_SLOWER:g}%%)",
    )


def _output(parser: _Parser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument("-q", dest="quiet", action="store_true", help="one line per gate")
    output.add_argument("-v", dest="verbose", action="store_true", help="the metrics of every output of every case")
    output.add_argument("--no-color", action="store_true", help="no colours (NO_COLOR does the same)")
    output.add_argument(
        "--format",
        choices=["auto", "plain", "github"],
        default="auto",
        help="plain: no live lines; github: annotations too",
    )
    output.add_argument(
        "--json", metavar="FILE", help="also write result.json to FILE; '-' is standard output, the text goes to stderr"
    )
    output.add_argument("--junit", metavar="FILE", help="also write JUnit XML to FILE")
    output.add_argument("--report", metavar="DIR", help="folder of the report (default: build/gates/<time>-<commit>)")


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0")
    return int(text)


def _tools(text: str) -> list[str]:
    tools = [tool.strip() for tool in text.split(",")]
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no checker '{unknown[0]}'; there are: {', '.join(TOOLS)} (gates stand before the flag)"
        )
    return [tool for tool in TOOLS if tool in tools]


def _views(text: str) -> list[str]:
    # Not above: a run without views needs none of this.
    from emulator.views.catalogue import OUTPUTS, VIEWS, choose
    from emulator.views.labels import ViewError

    try:
        return choose(text, VIEWS | OUTPUTS)
    except ViewError as error:
        raise argparse.ArgumentTypeError(f"{error} (gates stand before the flag)") from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no name: letters, digits and . _ - only, no dot or dash first")
    return text


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not text.endswith("%") or not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage from 0%, such as 15%")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value
