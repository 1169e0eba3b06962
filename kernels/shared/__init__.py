"""What the kernels share: printed shapes, pipelines with checked arrivals, fences around tensor memory."""
