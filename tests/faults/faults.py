"""Every planted fault, by kernel."""

from __future__ import annotations

from tests.faults.planted import others, simt, tensor_memory, tma

FAULTS = (
    *simt.ROW_SUM,
    *simt.WARP_REVERSE,
    *simt.ASYNC_COPIES,
    *simt.HANDOVER,
    *tma.TMA_DOUBLE,
    *tma.CLUSTER_SUM,
    *tma.CLUSTER_PUSH,
    *tensor_memory.MAILBOX,
    *tensor_memory.GEMM,
    *tensor_memory.GEMM_PAIR,
    *others.NVFP4,
    *others.MXFP8,
    *others.WGMMA_FAULTS,
    *others.FMHA,
    *others.MUTANTS,
)
