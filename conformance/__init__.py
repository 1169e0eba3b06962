"""Kernels that we did not write, run unchanged on the emulator.

`python -m conformance --cutlass DIR` runs the CuTe DSL examples and primitives of a CUTLASS checkout, each in a process
of its own, and writes docs/conformance.md. The kernels of PyPI packages are tests: tests/conformance.
"""
