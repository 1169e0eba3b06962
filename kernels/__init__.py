"""CuTe DSL kernels, one folder per operation.

``kernels.<op>`` is the host function: it checks its arguments, allocates the outputs through the backend and launches
once. ``kernels.<op>.config`` says what a kernel may be (pure Python), ``kernels.<op>.sm100`` is the device code.
Importing a package here imports neither CuTe DSL nor a driver; the device code is imported at the first call, when a
backend exists.
"""
