#!/usr/bin/env python3
"""Generate with DeepSeek-V4: `python run_decode.py --help`; without arguments, a small random model on any machine."""

from __future__ import annotations

import sys
from pathlib import Path

from gate.proven import proven
from model.cli import main

ROOT = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda arch, on: proven(ROOT, arch, on)))
