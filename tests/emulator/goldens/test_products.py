"""The probe kernels of wgmma and mma.sync: every form that was captured, bit for bit.

A form whose words were not stored because they equal others, or follow from them, is held against those: A from
registers equals A from shared memory; both operands negated equals none; one negated operand equals flipped signs in
A; scale-d 0 equals C = 0; a shorter 8-bit mma.sync equals the longer one with zeros behind. The asynchronous ones run
under every completion policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.goldens.probe import POLICIES, Out, archive, launches, member, run, u32

FORMATS = ("f16", "bf16", "tf32", "e4e4", "e4e5", "e5e4", "e5e5")
SIGN = {"f16": 0x8000, "bf16": 0x8000, "tf32": 0x80000000}
PLAIN = [c for c in launches("mma") if c.split("_")[1] in FORMATS and not c.startswith("msp")]
INTEGER = [c for c in launches("mma") if c.split("_")[1] not in FORMATS]
EDGES = [c for c in launches("mma2") if c[:3] in ("fl_", "cp_")]


def product(case: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, scale_d: int, policy: str) -> np.ndarray:
    """D of the kernel of a case on the given instances."""
    group = "mma" if case in launches("mma") else "mma2"
    kernel = launches(group)[case][0]
    arguments = [a, b, c, Out(c.nbytes), u32(scale_d)]
    (out,) = run("mma", kernel, len(a), 128, arguments, policy=policy, seed=1)
    return out.view(c.dtype).reshape(c.shape)


def operands(fmt: str, dt: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return member(f"mma/{fmt}/A"), member(f"mma/{fmt}/B"), member(f"mma/{fmt}/C{dt[1:]}")


def stored(fmt: str, unit: str, dt: str, kind: str) -> np.ndarray | None:
    """The captured words of a form, or of one that gave the same words."""
    full = "m16n8k8" if fmt == "tf32" else "m16n8k16"
    names = [f"mma/{fmt}/D_{unit}_{dt}_{kind}"]
    if kind in ("rs", "rsneg2") or (kind == full and fmt in SIGN):
        names.append(f"mma/{fmt}/D_wg_{dt}_ss")
    return next((member(n) for n in names if n in archive().files), None)


def derived(case: str, fmt: str, dt: str, kind: str) -> np.ndarray:
    """What a form without stored words must give, from the emulator's result for a form that has them."""
    a, b, c = operands(fmt, dt)
    if kind in ("neg", "negb"):
        flipped = a ^ a.dtype.type(SIGN.get(fmt, 0x80))
        return product(f"wg_{fmt}_{dt}_ss", flipped, b, c, 1, "in_order")
    if kind == "sd0":
        return product(f"wg_{fmt}_{dt}_ss", a, b, np.zeros_like(c), 1, "in_order")
    assert kind == "m16n8k16", case
    short = [np.where(np.arange(32) < 16, x, 0).astype(x.dtype) for x in (a, b)]
    return product(f"ms_{fmt}_{dt}_m16n8k32", *short, c, 1, "in_order")


@pytest.mark.parametrize("case", PLAIN)
def test_float_products(case: str) -> None:
    unit, fmt, dt, kind = case.split("_")
    want = stored(fmt, unit, dt, kind)
    want = derived(case, fmt, dt, kind) if want is None else want
    for policy in POLICIES if unit == "wg" else POLICIES[:1]:
        got = product(case, *operands(fmt, dt), int(kind != "sd0"), policy)
        assert (got == want).all(), f"{policy}: {(got != want).sum()} of {want.size} words"


def test_how_many_forms_have_words_of_their_own() -> None:
    own = [c for c in PLAIN if stored(*(c.split("_")[k] for k in (1, 0, 2, 3))) is not None]
    assert (len(PLAIN), len(own)) == (96, 60)


def _integer_words(case: str) -> np.ndarray:
    """m16n8k32 equals wgmma; other shapes have their own words, or (s8u8 only was stored) follow from m16n8k32."""
    unit, types, *rest = case.split("_")
    name = "_".join([types, *(r for r in rest if r == "sat")])
    kind = rest[-1] if rest and rest[-1].startswith("m16") else ""
    own = f"mma/int/D_{unit}_{name}" + (f"_{kind}" if kind == "m16n8k16" else "")
    if own in archive().files:
        return member(own)
    if kind == "m16n8k32":
        return member(f"mma/int/D_wg_{name}")
    assert kind == "m16n8k16", case
    a, b, c = (member(f"mma/int/{x}") for x in ("A", "B", "C32"))
    short = [np.where(np.arange(32) < 16, x, 0).astype(x.dtype) for x in (a, b)]
    return product(case.replace("m16n8k16", "m16n8k32"), *short, c, 1, "in_order")


@pytest.mark.parametrize("case", INTEGER)
def test_integer_products(case: str) -> None:
    a, b, c = (member(f"mma/int/{x}") for x in ("A", "B", "C32"))
    got = product(case, a, b, c, 1, POLICIES[INTEGER.index(case) % 3])
    assert (got == _integer_words(case)).all()


def _edge(case: str) -> tuple[tuple[np.ndarray, ...], np.ndarray] | None:
    """Operands and words of a floor (fl) or pass-through (cp) case; None where no words were stored."""
    what, unit, fmt, dt, kind = case.split("_")
    length = {"f16": 16, "bf16": 16, "tf32": 8}.get(fmt, 32)
    if what == "cp":
        c = member(f"mma/cpass/C_{dt}")
        names = [f"mma/cpass/{fmt}_D_{unit}_{dt}_{kind}", f"mma/cpass/{fmt}_D_wg_{dt}_ss" if length < 32 else ""]
        zeros: Any = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}.get(fmt, np.uint8)
        a, b = np.zeros((1, 64, length), zeros), np.zeros((1, 8, length), zeros)
    else:
        c = member(f"mma/floor/{fmt}_C")
        names = [f"mma/floor/{fmt}_D_wg_{dt}_ss"]
        a, b = (
            np.pad(x, ((0, 0), (0, 0), (0, length - x.shape[2])))
            for x in (member(f"mma/floor/{fmt}_A"), member(f"mma/floor/{fmt}_B"))
        )
    found = [n for n in names if n in archive().files]
    return ((a, b, c), member(found[0])) if found else None


@pytest.mark.parametrize("case", [c for c in EDGES if _edge(c)])
def test_floors_and_pass_through(case: str) -> None:
    (a, b, c), want = _edge(case) or ((), None)
    got = product(case, a, b, c, 1, "latest")
    assert (got == want).all()


def test_which_edge_cases_have_words() -> None:
    """The archive stores no words of the floor of f16 -> f32 (any floor up to -23 gives the same), none of C through
    f16 -> f16, and of e5m2 only wgmma -> f32."""
    without = [c for c in EDGES if not _edge(c)]
    assert without == [
        "fl_wg_f16_f32_ss",
        "fl_ms_f16_f32_m16n8k16",
        "fl_ms_f16_f32_m16n8k8",
        "cp_wg_f16_f16_ss",
        "cp_ms_f16_f16_m16n8k16",
        "cp_ms_f16_f16_m16n8k8",
        "cp_ms_e5e5_f32_m16n8k32",
        "cp_ms_e5e5_f32_m16n8k16",
        "cp_wg_e5e5_f16_ss",
        "cp_ms_e5e5_f16_m16n8k32",
        "cp_ms_e5e5_f16_m16n8k16",
    ]
