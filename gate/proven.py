"""What a model may rely on: every gate's entry of the ledger, on one architecture and kind of evidence."""

from __future__ import annotations

import argparse
from pathlib import Path

from gate.ledger import Entry, read_ledger
from gate.load import load
from gate.select import JobFactory


def proven(root: Path, arch: str, on: str) -> dict[str, Entry]:
    """Gate to entry (`Entry.proven` says whether it counts) for `arch` (sm90, sm100) and `on` (emulated, cuda).

    Gates that are only planned have none. Raises as `gate.load.load` does.
    """
    gates = load(root)
    ledger = read_ledger(root)
    factory = JobFactory(gates, argparse.Namespace())
    names = [name for name in gates.order if gates[name].state != "planned" and arch in gates[name].arch]
    return {name: ledger.entry(gates, name, arch, on, factory.digests(name, arch, on)) for name in names}
