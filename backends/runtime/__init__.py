"""The stand-in for the CuTe DSL runtime library: what compiled host code calls instead of CUDA."""
