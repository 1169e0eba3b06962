"""Kernels of the sample project."""
