"""`python -m emulator.views TRACE --view timeline,tmem [--out FOLDER]`: draw what a trace holds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from emulator.views.catalogue import VIEWS, choose, draw
from emulator.views.labels import ViewError
from emulator.views.trace import load_trace

EXIT_USAGE = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Print each view, and with --out save its figure; gives 0, or 4 for an unknown view or a bad trace."""
    parser = argparse.ArgumentParser(prog="python -m emulator.views", description=__doc__)
    parser.add_argument("trace", help="a file written by run_gate.py --debug trace, or by emulator.views.trace")
    parser.add_argument("--view", default=",".join(VIEWS), metavar="NAME[,NAME]", help=f"of: {', '.join(VIEWS)}")
    parser.add_argument("--out", metavar="FOLDER", help="save figures here as NAME.png (needs matplotlib)")
    options = parser.parse_args(argv)
    try:
        names = choose(options.view)
        recording = load_trace(options.trace).recording
        out = Path(options.out) if options.out else None
        for line in draw(recording, names, out):
            print(line)
    except ViewError as error:
        print(f"emulator.views: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
