"""Number formats and byte layouts, in plain PyTorch: what the packed tensors of kernels and checkpoints are judged
by.
"""
