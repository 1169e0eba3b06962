"""Mutants of the sample project."""
