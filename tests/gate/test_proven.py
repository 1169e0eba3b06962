"""What a model may rely on, asked of this tree."""

from __future__ import annotations

from pathlib import Path

from gate.load import load
from gate.proven import proven


def test_every_gate_with_a_kernel_has_an_entry_and_planned_ones_have_none(root: Path):
    gates = load(root)
    found = proven(root, "sm100", "emulated")
    assert set(found) == {
        name for name in gates.order if gates[name].state != "planned" and "sm100" in gates[name].arch
    }
    assert all(entry.gate == name and entry.on == "emulated" for name, entry in found.items())


def test_a_tree_without_results_proves_nothing(root: Path, tmp_path: Path):
    for name in ("gates.yaml", "stages", "mutants", "kernels", "oracles", "backends", "emulator", "model"):
        (tmp_path / name).symlink_to(root / name)
    found = proven(tmp_path, "sm100", "emulated")
    assert found and not any(entry.proven for entry in found.values())
    assert {entry.state for entry in found.values()} == {"never"}
