"""Stands in for the DSL: the sample's kernels need none, and importing the real one takes a second."""
