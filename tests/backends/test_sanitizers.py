"""Checkers on CuTe DSL kernels: the example of the documentation, and what the backend knows to be unwritten."""

from __future__ import annotations

import re

import torch

import backends
from backends import dlpack
from emulator.watch import checkers, findings
from tests.backends.sample_kernels import AddScaled


def test_the_example_of_the_documentation(root, capsys):
    page = (root / "docs" / "sanitizers.md").read_text()
    [setup], [example] = (
        re.findall(r"neighbours:\n(.*?)-->", page, re.S),
        re.findall(r"```python\n(.*?)```", page, re.S),
    )
    path = root / "build" / "test_sanitizers_example.py"
    path.parent.mkdir(exist_ok=True)
    imports = "import torch, cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack\n"
    path.write_text(imports + setup + example)
    try:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "example"})
    finally:
        path.unlink()
    said = capsys.readouterr().out
    assert said.startswith("memcheck: out of bounds: read of tensor[64]") and said.count("memcheck:") == 1
    assert "test_sanitizers_example.py:6" in said and "[kernel]" in said and "initcheck" not in said


def test_memory_of_the_backend_is_unwritten_until_torch_or_a_kernel_writes():
    fresh = dlpack.aligned_empty((4, 8), torch.float32)
    number = dlpack.poison(fresh)
    assert number and dlpack.poison(fresh.detach()) == dlpack.poison(fresh[1:]) == number
    assert dlpack.region(fresh, "fresh").poisoned == number
    assert dlpack.poison(dlpack.aligned_empty((4,), torch.float32)) not in (0, number)
    fresh[0] = 1
    assert dlpack.poison(fresh) == dlpack.poison(fresh[1:]) == 0
    assert dlpack.poison(torch.empty(4)) == 0
    with torch.inference_mode():
        assert dlpack.poison(dlpack.aligned_empty((4,), torch.float32)) == 0


def test_strides_travel_with_tensors_that_are_not_contiguous():
    x = torch.zeros(6, 10)
    assert dlpack.region(x, "x").strides == ()
    assert dlpack.region(x.T, "x").strides == (4, 40)
    assert dlpack.region(x[:, :8], "x").strides == (40, 4)
    assert dlpack.region(x[:1].expand(3, 10), "x").strides == ()


def test_a_kernel_that_reads_what_nobody_has_written():
    checks = checkers(["initcheck", "memcheck"])
    backend = backends.get("emulated", listeners=checks)
    a, b, c = torch.ones(64), backend.empty((64,), torch.float32), backend.empty((64,), torch.float32)
    compiled = backend.compile(AddScaled(), a, b, c, backend.stream())
    backend.launch(compiled, a, b, c, backend.stream())
    (finding,) = findings(checks)
    assert finding.kind == "uninitialised output" and "argument 1[0], which nobody has written" in finding.missing
    assert finding.role == "kernel" and finding.where.loc is not None and finding.count == 2
    checks = backend.listeners = checkers(["initcheck", "memcheck"])
    b.fill_(2.0)
    backend.launch(compiled, a, b, c, backend.stream())
    assert findings(checks) == [] and torch.equal(c, torch.full((64,), 3.0))
