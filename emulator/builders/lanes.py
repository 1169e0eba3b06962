"""Functions over vectors of 32 lanes that the NumPy builder calls by name: the one namespace of all families.

Contract: arguments and results are arrays of the algebra's types; a function never tells one NaN of an f16 or f32
argument from another and may return any NaN in an f16 or f32 result (bits are made canonical when they are observed);
f64 NaN are what the hardware gives. Floating point warnings are the caller's to silence.
"""

from emulator.builders.lanes_approx import *  # noqa: F403
from emulator.builders.lanes_base import *  # noqa: F403
from emulator.builders.lanes_convert import *  # noqa: F403
from emulator.builders.lanes_exact import *  # noqa: F403
from emulator.builders.lanes_float import *  # noqa: F403
from emulator.builders.lanes_half import *  # noqa: F403
from emulator.builders.lanes_integer import *  # noqa: F403
