"""Access to the words captured on an H200 (tests/data/hopper_goldens.npz)."""

from functools import cache
from pathlib import Path

import numpy as np

_DATA = Path(__file__).resolve().parents[2] / "data"


@cache
def _archive():
    return np.load(_DATA / "hopper_goldens.npz")


@cache
def hopper(name):
    """One member of the archive; JSON members come as uint8."""
    return _archive()[name]


def members(prefix):
    """Names of the members that start with `prefix`."""
    return [n for n in _archive().files if n.startswith(prefix)]


def data_file(name):
    """Path of a file in tests/data."""
    return _DATA / name
