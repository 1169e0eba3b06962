"""What a chunk pass may be: its settings, and every reason why one is refused. Pure Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.shared.formats import BlockFormat

PARTS = 256
"""Most partial maxima of a tensor."""
DTYPES = ("bf16", "f32")
THREADS = (128, 64, 32)
WORDS = {"bf16": 8, "f32": 16}
"""Words of a chunk."""


@dataclass(frozen=True)
class ChunkConfig:
    """One compiled kernel; rows, columns and strides are arguments.

    dtype     of the input: "bf16" or "f32"
    threads   of a CTA, 16 values each
    computed  the global scale is made from partial maxima instead of read
    """

    format: BlockFormat = field(default_factory=BlockFormat)
    dtype: str = "bf16"
    threads: int = 128
    computed: bool = False

    @property
    def words(self) -> int:
        """Words that a thread loads for a chunk."""
        return WORDS[self.dtype]

    @property
    def resident(self) -> int:
        """CTAs that a multiprocessor can hold: 1280 threads of up to 48 registers, 896 of 72 with more words. As
        many are launched, so that no CTA waits for another's end."""
        return min(32, (1280 if self.words == WORDS["bf16"] else 896) // self.threads)

    def problems(self) -> list[str]:
        """Every reason why there is no such kernel."""
        found = self.format.problems()
        if self.dtype not in DTYPES:
            found.append(f"dtype={self.dtype!r}; allowed: {', '.join(DTYPES)}")
        if self.threads not in THREADS:
            found.append(f"threads={self.threads}; allowed: {', '.join(map(str, THREADS))}")
        return found


def threads_for(columns: int) -> int:
    """Threads of a CTA that leave the fewest idle in rows of `columns` chunks."""
    return min(THREADS, key=lambda t: (-(-columns // t) * t, -t))
