"""Changing attributes of other packages for a while."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any


class Patches(ExitStack):
    """Attributes and environment variables that go back to what they were, in reverse order, when the stack closes."""

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set an attribute; returns what `owner` gave under that name before. An attribute that `owner` only
        inherited is deleted again in the end."""
        before = getattr(owner, name)
        if isinstance(getattr(type(owner), name, None), property):
            self.callback(setattr, owner, name, before)
        elif name in vars(owner):
            self.callback(setattr, owner, name, vars(owner)[name])
        else:
            self.callback(delattr, owner, name)
        setattr(owner, name, value)
        return before

    def environment(self, name: str, value: str) -> None:
        """Set an environment variable."""
        before = os.environ.get(name)
        if before is None:
            self.callback(os.environ.pop, name, None)
        else:
            self.callback(os.environ.__setitem__, name, before)
        os.environ[name] = value
