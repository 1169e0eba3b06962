"""Fences around hand-overs of tensor memory between warps.

tcgen05 instructions are asynchronous and are not ordered by an mbarrier alone. PTX (section tcgen05.fence) asks the
giving thread for ``before_thread_sync`` before it arrives, and the taking thread for ``after_thread_sync`` after it
waited.
"""

from __future__ import annotations

from cutlass._mlir.dialects import nvvm


def before_handover() -> None:
    """Order this thread's tcgen05 operations before the arrive that follows."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC)


def after_handover() -> None:
    """Order this thread's tcgen05 operations after the wait that precedes."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC)
