"""Faults of this stage's kernel: those of every linear."""

from mutants.linear import MUTANTS

__all__ = ["MUTANTS"]
