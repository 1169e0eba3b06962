"""What the kernel classes have in common: a configuration, refused if it has problems."""

from __future__ import annotations

from typing import Any


class Configured:
    """A kernel for one configuration, a frozen dataclass: compile caches tell kernels apart by class and `config`."""

    def __init__(self, config: Any):
        problems = config.problems()
        if problems:
            raise ValueError(f"{type(self).__name__}: " + "; ".join(problems))
        self.config = config
