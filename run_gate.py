#!/usr/bin/env python3
"""Judge the stages of this tree: `python run_gate.py --help`, `--list`, or the name of a gate."""

from __future__ import annotations

import sys
from pathlib import Path

from gate.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
