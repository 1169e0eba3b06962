"""The input of the draft block, stream by stream."""

from __future__ import annotations

import torch

from oracles.mtp import combine

rng = torch.Generator().manual_seed(0)
STREAMS, EMBEDDED = torch.randn(3, 4, 6, generator=rng), torch.randn(3, 6, generator=rng)
ENORM, HNORM = (1 + 0.2 * torch.randn(6, generator=rng) for _ in range(2))
E_PROJ, H_PROJ = (torch.randn(6, 6, generator=rng) for _ in range(2))


def unit(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.double() / (x.double().pow(2).sum() / 6 + 1e-6) ** 0.5 * w.double()


def test_every_stream_gets_the_embedding_of_the_next_token() -> None:
    got = combine(STREAMS, EMBEDDED, ENORM, HNORM, E_PROJ, H_PROJ)
    for t in range(3):
        for j in range(4):
            want = E_PROJ.double() @ unit(EMBEDDED[t], ENORM) + H_PROJ.double() @ unit(STREAMS[t, j], HNORM)
            torch.testing.assert_close(got[t, j], want, rtol=1e-13, atol=1e-13)
    assert combine(STREAMS[:0], EMBEDDED[:0], ENORM, HNORM, E_PROJ, H_PROJ).shape == (0, 4, 6)


def test_simulated_rounds_norms_products_and_the_sum() -> None:
    streams, embedded = STREAMS.bfloat16(), EMBEDDED.bfloat16()
    got = combine(streams, embedded, ENORM, HNORM, E_PROJ, H_PROJ, kind="simulated")
    for t in range(3):
        for j in range(4):
            e = (E_PROJ.double() @ unit(embedded[t], ENORM).bfloat16().double()).bfloat16().double()
            h = (H_PROJ.double() @ unit(streams[t, j], HNORM).bfloat16().double()).bfloat16().double()
            assert torch.equal(got[t, j], (e + h).bfloat16().double())
