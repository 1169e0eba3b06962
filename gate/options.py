"""The command line's flags, parsed with argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from gate.errors import UsageError

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
"""


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
    if options.falsify and options.oracle_only:
        raise UsageError("--falsify runs kernels, --oracle-only runs none: give one of them")
    if options.oracle_only and options.on != "auto":
        raise UsageError(f"--oracle-only runs no kernel, so --on {options.on} has no meaning")
    actions = [f"--{name}" for name in ("list", "check", "new") if getattr(options, name)]
    if len(actions) > 1:
        raise UsageError(f"{' and '.join(actions)} are different actions: give one of them")
    return options


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

    select = parser.add_argument_group("selection")
    select.add_argument("-k", metavar="EXPR", help="cases whose id matches: -k 'n256 and not sm90'")
    select.add_argument("--lf", action="store_true", help="only the cases that failed last time")
    select.add_argument("--resume", action="store_true", help="leave out cases that pass already and are not stale")
    select.add_argument(
        "--arch", choices=["sm90", "sm100"], help="only this architecture (default: all that the gate names)"
    )
    select.add_argument("--seed", type=_natural, metavar="N", help="only this seed")

    _how(parser)
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
    how.add_argument("-x", dest="stop", action="store_true", help="stop at the first failure")
    how.add_argument(
        "-j", type=_positive, metavar="N", dest="jobs", help="cases at once (default: the cores of this machine)"
    )
    how.add_argument("--timeout", type=_seconds, metavar="S", help="seconds per case, whatever gates.yaml says")
    how.add_argument(
        "--debug", choices=["shapes", "ptx"], help="print shapes at trace time, or keep the PTX of every kernel"
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


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value
