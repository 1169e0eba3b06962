"""Address windows: how a 64-bit generic address says which space it means.

Global, constant, parameter and local memory are real regions of `GlobalMemory`, so their generic address is the
address. Shared memory is the shared::cluster address (rank << 24 | offset) moved up by `SHARED_WINDOW`.
"""

from __future__ import annotations

SHARED_WINDOW = 1 << 50
SHARED_RESERVED = 1024
"""Bytes at the start of shared memory that the system keeps; a kernel's own variables begin behind them."""

SHARED_CAPACITY = 232448
"""Largest dynamic + static shared memory of a CTA on sm_90 and sm_100 (227 KiB)."""

LOCAL_CAPACITY = 512 << 10
"""Largest local memory of a thread (CUDA C++ programming guide, technical specifications)."""
