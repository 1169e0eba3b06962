"""Benchmarks: medians and ratios of one run, printed; nothing here is asserted."""
