"""What breakpoints raise."""

from __future__ import annotations

from emulator.errors import EmulatorError


class BadBreakpoint(EmulatorError):
    """A place, barrier, register, field or layout that this kernel does not have; the message names what there is."""


class NeverReached(EmulatorError):
    """The launch ended before a breakpoint was reached; the message says where it ended."""


class Stopped(EmulatorError):
    """The launch was given up at a breakpoint."""


class LeftBehind(EmulatorError):
    """A stop was asked about after the launch had gone on."""
