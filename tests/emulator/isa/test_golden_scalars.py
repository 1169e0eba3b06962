"""Every scalar form captured on an H200, run through the opcode table: equal bits, or an error bound, or a reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from emulator.builders.algebra import Unsupported
from emulator.errors import PtxSyntaxError
from tests.emulator.isa import captured
from tests.emulator.isa.harness import Code, batches

EXCLUDED = {
    r"v(add|sub|absdiff|min|max|set|shl|shr|mad)[24]?\.": "video instructions: no compiler emits them any more",
    r"fma\.rn\.oob\.": "the captured inputs hold no out-of-bounds NaN, so what .oob does is not known: refused",
}
"""Forms that the table refuses."""


def _ulp(limit: int) -> Callable[[np.ndarray, np.ndarray], bool]:
    def check(got: np.ndarray, want: np.ndarray) -> bool:
        kind = np.int32 if got.dtype == np.float32 else np.int64
        lowest = np.iinfo(kind).min
        a, b = (np.where(x.view(kind) < 0, lowest - x.view(kind), x.view(kind)).astype(object) for x in (got, want))
        return max(abs(a - b)) <= limit

    return check


def _relative(exponent: float, absolute_near_one: bool = False) -> Callable[[np.ndarray, np.ndarray], bool]:
    def check(got: np.ndarray, want: np.ndarray) -> bool:
        error = np.abs(got.astype(float) - want)
        scale = np.abs(want.astype(float))
        if absolute_near_one:
            scale = np.maximum(scale, 1.0)
        return bool((error <= scale * 2.0**exponent).all())

    return check


def _absolute(limit: float) -> Callable[[np.ndarray, np.ndarray], bool]:
    return lambda got, want: float(np.abs(got.astype(float) - want).max()) <= limit


BOUNDED = {
    r"ex2\.approx(\.ftz)?\.f32": _ulp(2),
    r"(rcp|rsqrt|sqrt)\.approx(\.ftz)?\.f32": _ulp(1),
    r"div\.(approx|full)(\.ftz)?\.f32": _ulp(1),
    r"lg2\.approx(\.ftz)?\.f32": _relative(-22, absolute_near_one=True),
    r"tanh\.approx\.f32": _relative(-16),
    r"(sin|cos)\.approx(\.ftz)?\.f32": _absolute(3.3e-7),
    r"(rcp|rsqrt)\.approx\.ftz\.f64": _relative(-20),
    r"rsqrt\.approx\.f64": _ulp(1),
}
"""Approximate functions: the hardware's tables are not public. Infinities and NaN are equal, finite results near."""


def _one_nan(form: captured.Form) -> np.ndarray:
    nan = [np.isnan(form.inputs[name].view(np.float64)) for name in "ab"]
    return ~(nan[0] & nan[1])


PARTIAL = {
    r"(add|mul|min|max|fma)\.((rn|rz|rm|rp)\.)?f64": (_one_nan, "which of two f64 NaN survives is not modelled"),
    r"fns\.b32": (lambda form: form.inputs["b"] < 32, "a base above 31 is undefined"),
}
"""Forms that must be equal on the words that the function selects."""


def _find(patterns: dict[str, object], form: captured.Form) -> object:
    return next((value for pattern, value in patterns.items() if re.match(pattern, form.opcode)), None)


def _run(form: captured.Form) -> np.ndarray:
    code = Code(form.body, form.registers)
    count, chunks = batches(form.inputs)
    return np.concatenate([code(**chunk)["d"] for chunk in chunks])[:count].astype(form.words.dtype)


def _check(form: captured.Form) -> str:
    if _find(EXCLUDED, form):
        with pytest.raises((Unsupported, PtxSyntaxError)):
            Code(form.body, form.registers)
        return "excluded"
    got, want = _run(form), form.words
    near = _find(BOUNDED, form)
    if near:
        assert callable(near)
        kind = np.float32 if want.dtype == np.uint32 else np.float64
        x, y = got.view(kind), np.ascontiguousarray(want).view(kind)
        if kind is np.float32:
            assert (got[np.isnan(x)] == want[np.isnan(x)]).all(), form.text
        assert (np.isnan(x) == np.isnan(y)).all() and (x[np.isinf(x)] == y[np.isinf(x)]).all(), form.text
        assert near(x[np.isfinite(y)], y[np.isfinite(y)]), form.text
        return "bounded"
    partial = _find(PARTIAL, form)
    if partial:
        chosen = partial[0](form)  # type: ignore[index]
        got, want = got[chosen], want[chosen]
        assert chosen.sum() > 250
    wrong = np.flatnonzero(got != want)
    shown = [tuple(hex(v[k]) for v in (*form.inputs.values(), got, want)) for k in wrong[:3]]
    assert wrong.size == 0, f"{form.text}: {wrong.size} of {want.size} words differ: (operands, got, want) {shown}"
    return "equal"


@pytest.mark.parametrize("number", range(50), ids=lambda n: f"out{n}")
def test_captured_words(number: int) -> None:
    """Each array of results."""
    results = [_check(form) for form in captured.forms(captured.groups()[number])]
    print({kind: results.count(kind) for kind in sorted(set(results))})


def test_every_form_is_accounted_for() -> None:
    """1066 forms were captured; 22 are held to a bound and 42 refused, each for a reason above."""
    forms = [form for entry in captured.groups() for form in captured.forms(entry)]
    excluded = [f for f in forms if _find(EXCLUDED, f)]
    bounded = [f for f in forms if _find(BOUNDED, f)]
    partial = [f for f in forms if _find(PARTIAL, f)]
    print(f"{len(forms)} forms: {len(bounded)} bounded, {len(excluded)} excluded, {len(partial)} equal where defined")
    assert (len(forms), len(bounded), len(excluded), len(partial)) == (1066, 22, 42, 15)


# ---------------------------------------------------------------- what ptxas refused for sm_90a
_LATER = {
    "requires .target sm_100 or higher": r".*",
    "Unexpected instruction types specified for 'cvt'": r"cvt\.rn\..*\.e[45]m[32]x2\.bf16x2",
    "Arguments mismatch for instruction 'cvt'": r"cvt\.(rn\.satfinite\.e2m1x2\.f32|r.*[us](8|16)\.bf16|r.\.bf16\..*)",
    "not supported on .target 'sm_90a'": r"cvt\.(rn\.satfinite\.e[23]m[32]x2|r[zp]\.ue8m0x2)\.f32",
}
"""Refused for sm_90a but accepted here, because sm_100a has them (PTX ISA 9.7.9.21, 9.7.5, the f32x2 and three-operand
forms); the probes for bf16 and 8 or 16 bit integers used registers of another width."""

_WIDTHS = {"f16x2": "b32", "bf16x2": "b32", "tf32": "b32", "f32x2": "b64", "e2m1x2": "b8", "f32": "b32", "f64": "b64"}


def _width(type: str) -> str:
    bits = re.fullmatch(r"[usb](8|16|32|64)", type)
    return _WIDTHS.get(type) or (f"b{max(16, int(bits[1]))}" if bits else "b16")


def _registers(opcode: str) -> dict[str, str]:
    types = [
        t for t in opcode.split(".")[1:] if t in _WIDTHS or re.fullmatch(r"[usb]\d+(x2)?|b?f16|e\dm\dx2|ue8m0x2", t)
    ]
    first, last = _width(types[0]), _width(types[-1])
    registers = {"d": first, "a": last, "b": last, "c": last, "p": "pred", "pp": "pred"}
    if opcode.startswith(("add", "fma")) and types[0] == "f32" != types[-1]:
        registers |= {"b": last if opcode.startswith("fma") else first, "c": first}
    return registers


def test_forms_that_ptxas_refuses_are_refused() -> None:
    """All captured refusals of scalar forms, except those that are refused only for the age of the target."""
    refused = {t: why for t, why in captured.table("refused").items() if "{a}" in t}
    accepted = []
    for text in refused:
        body = re.sub(r"\{(\w)\}", r"\1", text) + ";"
        try:
            Code(body, _registers(text.split()[0]))
        except (Unsupported, PtxSyntaxError):
            continue
        accepted.append(text)
    for text in accepted:
        assert any(why in refused[text] and re.match(form, text) for why, form in _LATER.items()), (text, refused[text])
    print(f"{len(refused)} refused forms, {len(accepted)} accepted for sm_100a")
    assert (len(refused), len(accepted)) == (522, 65)
