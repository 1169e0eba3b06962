"""Kernels with one planted fault each, by operation. Every one must be rejected by its gates."""
