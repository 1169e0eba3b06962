"""Reading and writing checkpoints: DeepSeek's own format, NVIDIA's NVFP4, BF16, and what transformers saves."""

from model.checkpoint.load import PRECISIONS, Precision, load, weights_from
from model.checkpoint.random import random_tensors
from model.checkpoint.write import FORMS, write

__all__ = ["FORMS", "PRECISIONS", "Precision", "load", "random_tensors", "weights_from", "write"]
