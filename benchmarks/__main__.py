"""`python -m benchmarks [NAME ...]`: run the named benchmarks (default: all), each a module here with a `main()`."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Parse the names and run them in order."""
    here = Path(__file__).parent
    known = sorted(p.stem for p in here.glob("*.py") if not p.stem.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(known)}")
    names = parser.parse_args().names or known
    for name in names:
        if name not in known:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(known)}")
    # As in the judge: one case, one core. The products are too small for more threads. Libraries read this when loaded.
    os.environ.update(dict.fromkeys(THREADS, "1"))
    for name in names:
        print(f"== {name}")
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
