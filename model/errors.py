"""What can be wrong with what a user gives, by kind. Each message names what was found and what is allowed."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration that is not DeepSeek-V4, is incomplete, or contradicts itself."""


class CheckpointError(ValueError):
    """A file or tensor of a checkpoint that is missing, superfluous, damaged, or not as the configuration wants it."""

    def __init__(self, file: object, tensor: str, found: object, wanted: object) -> None:
        super().__init__(f"{file}: {tensor or 'file'}: found {found}; wanted {wanted}")
        self.file, self.tensor, self.found, self.wanted = str(file), tensor, str(found), str(wanted)


class CacheError(ValueError):
    """A request that the cache cannot meet; the cache is as it was before."""


class InputError(ValueError):
    """Tokens or sequences that a step cannot take; nothing has been run or changed."""
