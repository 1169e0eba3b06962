"""The command line: flags in, exit code out. Imports torch nowhere, and everything else only when it is needed."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gate.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, BadFile, GateError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from gate.load import Gates


def main(argv: Sequence[str], root: Path) -> int:
    """Run the tool on the tree at `root`; gives the exit code (`gate.errors`). Refusals go to stderr."""
    from gate.options import parse

    try:
        return _act(parse(argv), argv, root)
    except BadFile as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except GateError as error:
        print(f"run_gate.py: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("run_gate.py: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; the interpreter must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception:
        traceback.print_exc()
        print("run_gate.py: this is a bug in the gate itself; please report it with the lines above", file=sys.stderr)
        return EXIT_INTERNAL


def _act(options: argparse.Namespace, argv: Sequence[str], root: Path) -> int:
    from gate.load import load
    from gate.screens import console

    gates = load(root)
    colour = not options.no_color and "NO_COLOR" not in os.environ
    out = console(colour=colour, stderr=options.json == "-")
    if options.list:
        from gate import ledger, listing

        listing.show(gates, options, ledger.read_ledger(root), out)
        return EXIT_OK
    if options.check:
        return _check(gates, out)
    if options.new:
        from gate.new import create

        for line in create(gates, options.new):
            out.print(line, soft_wrap=True)
        return EXIT_OK
    if options.notebook:
        return _notebook(gates, options, out)
    command = shlex.join(["run_gate.py", *argv])
    if options.bench:
        from gate.bench.run import bench

        return bench(gates, options, command, out)
    from gate.execute import run

    return run(gates, options, command, out)


def _notebook(gates: Gates, options: argparse.Namespace, out: Console) -> int:
    from gate.select import gate_names

    if not options.gates:
        raise UsageError("--notebook: name the gates")
    try:
        from gate.notebook import write_or_open
    except ModuleNotFoundError as missing:
        raise UsageError(f"--notebook needs {missing.name}: pip install -e '.[notebooks]'") from None
    for line in write_or_open(gates, gate_names(gates, options.gates)):
        out.print(line, soft_wrap=True)
    return EXIT_OK


def _check(gates: Gates, out: Console) -> int:
    from gate.check import check

    problems = check(gates)
    if problems:
        raise BadFile(problems)
    built = sum(gate.state != "planned" for gate in gates.file.gates.values())
    out.print(f"gates.yaml ok: {len(gates.order)} gates · {built} stages ok", soft_wrap=True)
    return EXIT_OK
