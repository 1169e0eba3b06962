"""DeepSeek-V4 for inference: configuration, checkpoints, caches, prefill, decode and multi-token prediction.

Everything runs on PyTorch; which operation is a kernel and which an oracle is one table (`model.ops.Ops`).
"""
