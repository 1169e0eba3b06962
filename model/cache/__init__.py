"""What a sequence leaves behind: window keys, compressed entries, index entries, and the states of open windows."""

from model.cache.cache import Cache, LayerCache
from model.cache.rows import FORMS, Rows

__all__ = ["FORMS", "Cache", "LayerCache", "Rows"]
