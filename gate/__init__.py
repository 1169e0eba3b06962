"""The judge: reads `gates.yaml`, runs each case of a stage in a process of its own, compares, falsifies and reports.

The command line (`gate.cli`) imports neither torch nor cutlass; only the worker processes (`gate.server`) do.
"""
