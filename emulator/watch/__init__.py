"""Checkers: listeners that report what values alone do not show. They never change the state of a launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from emulator.watch.finding import TOOLS, Finding, summary

__all__ = ["TOOLS", "Checker", "Finding", "UnknownTool", "checkers", "failed", "findings", "summary"]


class Checker(Protocol):
    """A listener with a name and what it has found, each mistake once with a count."""

    tool: str

    @property
    def findings(self) -> list[Finding]:
        """What it has found so far, in the order found."""

    def __call__(self, record: Any) -> None:
        """Take one record of `emulator.events`."""

    def failed(self, error: BaseException) -> None:
        """A launch has ended with `error`."""


class UnknownTool(ValueError):
    """A checker that does not exist was asked for."""


def checkers(tools: Sequence[str] | None = None) -> list[Checker]:
    """New checkers of these names (`TOOLS`), in this order and each once; None: all of them.

    Raises UnknownTool naming the allowed ones.
    """
    wanted = list(dict.fromkeys(TOOLS if tools is None else tools))
    unknown = [tool for tool in wanted if tool not in TOOLS]
    if unknown:
        raise UnknownTool(f"no checker {unknown[0]!r}; there are: {', '.join(TOOLS)}")
    return [_make(tool) for tool in wanted]


def _make(tool: str) -> Checker:
    module = import_module(f"emulator.watch.{tool}")
    checker: Checker = getattr(module, tool.capitalize())()
    return checker


def failed(checkers: Iterable[Checker], error: BaseException | None) -> None:
    """A launch that they listened to has ended with `error`: those that can tell what it means note it."""
    if error is not None:
        for checker in checkers:
            checker.failed(error)


def findings(checkers: Iterable[Checker]) -> list[Finding]:
    """What all of them have found, checker by checker."""
    return [finding for checker in checkers for finding in checker.findings]
