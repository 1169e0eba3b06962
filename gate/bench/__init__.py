"""Times on a GPU (`--bench`): the bench cases of gates.yaml, each beside its floor, its limit and others' kernels."""
