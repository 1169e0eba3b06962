"""Printed shapes, pinned modes, and shapes pinned by a test; on plain stand-ins and on tensors that are traced."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.shared import show as module
from kernels.shared.show import describe, expect_shapes, show, showing


class Float16:
    """Stands for the element type of the DSL."""

    width = 16


SQ = SimpleNamespace(layout="(128,64):(64,1)", memspace="AddressSpace.smem", element_type=Float16)


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_SHOW", raising=False)
    monkeypatch.setattr(module, "_of_process", [])


# ---------------------------------------------------------------- printing
def test_silent_unless_asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    show(SQ, "rows, columns")
    assert capsys.readouterr().out == ""
    seen: list[str] = []
    with showing(seen.append):
        show("rows, columns", sQ=SQ)
    show(sQ=SQ)
    rows = ["    0  rows     128 : 64  steps of 64", "    1  columns  64 : 1    contiguous"]
    assert seen == ["sQ       (128,64):(64,1)   smem Float16", *rows]
    monkeypatch.setenv("WORKBENCH_SHOW", "1")
    show(sQ=SQ)
    assert capsys.readouterr().out.splitlines()[0] == "sQ       (128,64):(64,1)   smem Float16"


def test_off_it_looks_at_nothing() -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    show(Untouchable(), "a, b", named=Untouchable())


def test_the_name_is_the_callers_variable() -> None:
    tSgQ, other = SQ, SimpleNamespace(layout="4:1")
    with showing(lambda line: None) as listing:
        show(tSgQ, other)
        show(SimpleNamespace(layout="4:1"))
        show(renamed=other)
    assert [shown.name for shown in listing.shown] == ["tSgQ", "other", "?", "renamed"]


def test_labels_that_do_not_fit_are_said_to() -> None:
    assert describe("q", "(4,2):(2,1)", "row") == [
        "q        (4,2):(2,1)   # 1 labels for 2 modes: row",
        "    0  4 : 2  steps of 2",
        "    1  2 : 1  contiguous",
    ]


def test_contexts_nest_and_end() -> None:
    with showing(lambda line: None) as outer:
        with showing(lambda line: None) as inner:
            show(sQ=SQ)
        show(sP=SQ)
    show(sR=SQ)
    assert ([s.name for s in inner.shown], [s.name for s in outer.shown]) == (["sQ"], ["sP"])


# ---------------------------------------------------------------- traced tensors
@pytest.fixture(scope="module")
def traced(backend: Any) -> Any:
    """Lines and pins of a host function that makes one tensor of every kind."""
    import cutlass
    from cutlass import cute

    @cute.jit
    def host(mX: Any, n: Any) -> None:
        swizzled = cute.make_composed_layout(
            cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, 64, 2), stride=(64, 1, 512))
        )
        show(swizzled, "row, column, stage")
        tiles = cute.flat_divide(mX, (16, 32))
        show(tiles, "row, column, row tile, column tile")
        tiles[None, None, 0, 1]
        tiles[None, None, 0, 1]
        pairs = cute.zipped_divide(mX, (16, 32))
        pairs[(None, 3), (None, 0)]
        pairs[None, (n, 0)]
        thin = cute.flat_divide(mX, (16, 96))
        thin[None, None, None, 0]
        held = cute.make_rmem_tensor((4, 8), cutlass.Float32)
        held[None, 3]
        mX[0, 1]
        pointer = cute.make_ptr(cutlass.Float32, 0, cute.AddressSpace.tmem, assumed_align=16)
        tAcc = cute.make_tensor(pointer, cute.make_layout(((128, 64), 2), stride=((65536, 1), 64)))
        show(tAcc, "accumulator, stage")
        tAcc[None, 1]
        places = cute.make_identity_tensor((4, 8))
        show(places)
        places[None, 7]

    lines: list[str] = []
    with showing(lines.append) as listing:
        cute.compile(host, backend.tensor(torch.zeros(64, 96), "x", dynamic=False), cutlass.Int32(1))
    return lines, listing.pins, host


KINDS = """\
swizzled S<3,4,3> o 0 o (8,64,2):(64,1,512)
    0  row     8 : 64   steps of 64
    1  column  64 : 1   contiguous
    2  stage   2 : 512  steps of 512
tiles    (16,32,4,3):(96,1,1536,32)   gmem Float32
    0  row          16 : 96   steps of 96
    1  column       32 : 1    contiguous
    2  row tile     4 : 1536  steps of 1536
    3  column tile  3 : 32    steps of 32
tAcc     ((128,64),2):((65536,1),64)   tmem Float32
    0  accumulator  (128,64) : (65536,1)  128 lanes x 64 columns
    1  stage        2 : 64                2 places 64 columns apart
places   (4,8):(1@0,1@1)   coordinates
    0  4 : 1@0  dimension 0
    1  8 : 1@1  dimension 1"""


def test_every_kind_of_tensor(traced: Any) -> None:
    assert "\n".join(line for line in traced[0] if not line.startswith("PINNED")) == KINDS


def test_pins(traced: Any) -> None:
    """Constants on modes of several indices of what lies in global memory, each place once; nested modes by path."""
    pins = [(p.name, p.mode, p.label, p.shape, p.at) for p in traced[1]]
    assert pins == [
        ("tiles", "2", "row tile", "4", 0),
        ("tiles", "3", "column tile", "3", 1),
        *[("tiles", "2", "row tile", "4", 0), ("tiles", "3", "column tile", "3", 1)],
        ("pairs", "0.1", "", "32", 3),
        ("pairs", "1.1", "", "3", 0),
        ("pairs", "1.1", "", "3", 0),
        ("places", "1", "", "8", 7),
    ]
    assert len({p.place for p in traced[1]}) == 5
    loud = [line for line in traced[0] if line.startswith("PINNED")]
    assert len(loud) == len(pins)
    assert loud[0].startswith(
        "PINNED   tiles: mode 2 'row tile' (4 : 1536, size 4) is fixed at 0 by tests/kernels/shared/"
    )
    assert loud[0].endswith("; no other index of it can be reached")


def test_slices_are_not_watched_for_longer() -> None:
    tensor = pytest.importorskip("cutlass.cute.tensor")._Tensor
    plain = tensor.__getitem__
    with showing(lambda line: None), showing(lambda line: None):
        assert tensor.__getitem__ is not plain
    assert tensor.__getitem__ is plain


# ---------------------------------------------------------------- the attention kernel and its mutant
FMHA_SHAPES = """
    tKgK_all  (((64,128),1),?,1,?,?):(((1@0,1@1),0),128@1,0,1@2,1@3)   # mode 1 counts key tiles
    tKsK      ((8192,1),2):((1,0),8192)
    tKgK      (((64,128),1),?):(((1@0,1@1),0),128@1)
    tVgV_all  (((64,128),1),1,?,?,?):(((1@0,1@1),0),0,128@1,1@2,1@3)   # mode 2 counts key tiles
    tVgV      (((64,128),1),?):(((1@0,1@1),0),128@1)
    tStS      ((128,128),1,1,2):((65536,1),0,0,128)
    tOtO      ((128,64),1,1):((65536,1),0,0)
"""


def trace(kernel: type, backend: Any) -> None:
    """Trace the kernel for 64 values a head, without compiling machine code into a cache."""
    from cutlass import Float32, Int32, cute

    from backends.dsl import settings
    from kernels.fmha.config import FmhaConfig

    x = torch.zeros(1, 40, 2, 64, dtype=torch.float16)
    args = [backend.tensor(x, "x", leading_dim=3) for _ in range(4)]
    args.append(backend.tensor(torch.zeros(1, 2, 40), "lse", leading_dim=2))
    with settings(backend.arch, None):
        cute.compile(kernel(FmhaConfig("f16", 64, "online")), *args, Float32(1.0), Int32(0), backend.stream())


def test_shapes_of_the_attention_kernel(backend: Any) -> None:
    from kernels.fmha.sm100 import FmhaSm100

    with expect_shapes(FMHA_SHAPES) as listing:
        trace(FmhaSm100, backend)
    assert listing.pins == [] and len(listing.shown) > 20


def test_the_pinned_tile_is_named_loudly(backend: Any) -> None:
    from mutants.fmha import MUTANTS

    lines: list[str] = []
    with showing(lines.append) as listing:
        trace(MUTANTS["kv_tile_pinned"], backend)
    pinned = [line for line in lines if line.startswith("PINNED")]
    words = "(? : 128@1, extent known at run time) is fixed at 0 by mutants/fmha.py:"
    assert pinned[0].startswith(f"PINNED   tKgK_all: mode 1 'kv tile' {words}")
    assert pinned[1].startswith(f"PINNED   tVgV_all: mode 2 'kv tile' {words}")
    assert len(pinned) == 2 and [pin.name for pin in listing.pins] == ["tKgK_all", "tVgV_all"]
    assert lines.index(pinned[0]) > lines.index(next(line for line in lines if line.startswith("tKgK_all")))


# ---------------------------------------------------------------- expect_shapes
def _slice() -> None:
    show(a=SimpleNamespace(layout="(4,2):(2,1)"), b=SimpleNamespace(layout="8:1"))
    show(a=SimpleNamespace(layout="(4,2):(1,4)"))


@pytest.mark.parametrize("expected", ["", "a (4,2):(2,1)", "a (4,2):(2,1)\nb 8:1 # all\n\na (4,2):(1,4)", "b  8:1"])
def test_expected_shapes_hold(expected: str) -> None:
    with expect_shapes(expected):
        _slice()


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("a (4,3):(2,1)", r"a is \(4,2\):\(2,1\) and \(4,2\):\(1,4\), expected \(4,3\)"),
        ("c 8:1", r"c was not shown; shown: a, b \(a kernel from a compile cache is not traced\)"),
        ("b 8:1\na (4,2):(2,1)", r"a \(4,2\):\(2,1\) was shown, but not behind b"),
        ("b 8:1\nb 8:1", "b 8:1 was shown, but not behind b"),
        ("b", "b is 8:1, expected "),
    ],
)
def test_other_shapes_fail(expected: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words), expect_shapes(expected):
        _slice()


def test_nothing_shown_is_said() -> None:
    with pytest.raises(AssertionError, match="a was not shown; shown: nothing"), expect_shapes("a 8:1"):
        pass


def test_an_unexpected_pin_fails(backend: Any) -> None:
    from cutlass import cute

    @cute.jit
    def host(mX: Any) -> None:
        show(mX)
        mX[None, 5]

    x = backend.tensor(torch.zeros(64, 96), "x", dynamic=False)
    with pytest.raises(AssertionError, match=r"PINNED   mX: mode 1 \(96 : 1, size 96\) is fixed at 5"):
        with expect_shapes("mX (64,96):(96,1)"):
            cute.compile(host, x)
    with expect_shapes("mX (64,96):(96,1)", pinned=["mX"]):
        cute.compile(host, x)


def test_an_error_inside_is_the_error() -> None:
    with pytest.raises(ZeroDivisionError), expect_shapes("never 8:1"):
        raise ZeroDivisionError


# ---------------------------------------------------------------- the documentation
def test_the_example_of_the_documentation(backend: Any, tmp_path: Path) -> None:
    """Its function prints its text, but for the name of the file; its expectation holds."""
    from cutlass import cute

    text = (Path(__file__).parents[3] / "docs" / "shapes.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    (expected, pinned) = re.findall(r'expect_shapes\("""(.*?)""", pinned=\["(\w+)"\]', text, re.DOTALL)[0]
    file = tmp_path / "shapes.py"
    file.write_text(source)
    spec = spec_from_file_location("shapes_of_the_documentation", file)
    assert spec is not None and spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    lines: list[str] = []
    x = backend.tensor(torch.zeros(64, 96), "x", dynamic=False)
    with showing(lines.append):
        cute.compile(example.copy, x)
    assert "\n".join(lines).replace(str(file), "docs/shapes.py") == printed.strip()
    with expect_shapes(expected, pinned=[pinned]):
        cute.compile(example.copy, x)
