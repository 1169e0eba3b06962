"""Slow PyTorch, one file per operation, fp64 inside: what the kernels are judged by. Nothing here knows CuTe DSL."""
