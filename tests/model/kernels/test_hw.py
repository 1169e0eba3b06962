"""The tiny model with kernels on a real GPU: `pytest --hw tests/model/kernels/test_hw.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import backends
from model import cli
from model.forward import Model
from model.ops import Ops
from model.plan import Plan, plan
from tests.model.kernels.bench import Everything, bound, diff, opened, written

pytestmark = pytest.mark.hw
PROMPT = [5, 300, 41, 7, 9, 100, 12, 13, 450, 77, 3, 2, 8, 19, 20, 21, 22, 23, 24]


@pytest.fixture(scope="module")
def gpu() -> Any:
    from backends.cuda import gpu_arch

    arch = gpu_arch()
    if arch not in backends.ARCHES:
        pytest.fail(f"--hw was given, but the GPU is {arch}")
    return backends.get("cuda", arch=arch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("tiny"))[0]


def bind(gpu: Any, folder: Path, precision: str, stored: str = "plain") -> tuple[Model, Model]:
    """The model on kernels and on oracles, both on the GPU."""
    config, weights = opened(folder, precision, str(gpu.device))
    ops = bound(gpu.arch.replace("sm_", "sm").removesuffix("a"), gpu, config, weights, stored)
    print(ops)
    oracles = Ops.oracles(stored=stored)  # type: ignore[arg-type]
    return Model(config, weights, ops, dtype=torch.bfloat16), Model(config, weights, oracles, dtype=torch.bfloat16)


def spoken(model: Model, count: int, given: list[int] | None = None) -> tuple[list[int], torch.Tensor]:
    """Tokens after the prompt, each the most likely one or as given, and their logits on the host."""
    cache = model.new_cache(1, 256)
    sequence = cache.open()
    rows = [model.prefill(cache, [sequence], [PROMPT])[0]]
    tokens: list[int] = []
    for i in range(count):
        tokens.append(int(rows[-1].argmax()) if given is None else given[i])
        rows.append(model.decode(cache, [sequence], torch.tensor([[tokens[-1]]], device=model.device))[0, 0])
    return tokens, torch.stack(rows).cpu()


@pytest.mark.parametrize(("precision", "same"), [("nvfp4_full", 8), ("native", 5)])
def test_the_oracles_of_a_cpu_say_the_same(gpu: Any, folder: Path, precision: str, same: int) -> None:
    """Greedy tokens up to the first one that hangs on the last bits of BF16, of which GPU and CPU round others."""
    on_kernels, on_oracles = bind(gpu, folder, precision)
    config, weights = opened(folder, precision)
    want, logits = spoken(Model(config, weights, Ops.oracles(), dtype=torch.bfloat16), 8)
    _, got = spoken(on_kernels, 8, want)
    _, plain = spoken(on_oracles, 8, want)
    print(precision, "kernels", diff(got, logits), "oracles of the GPU", diff(plain, logits), diff(got, plain))
    assert diff(got, logits) < 1e-3 and on_kernels.ops.packed_nbytes > 3e6
    assert spoken(on_kernels, same)[0] == want[:same]


class Graph:
    """The decode step of one sequence as a CUDA graph, made at the first step that is asked for and refilled for the
    others."""

    def __init__(self, gpu: Any, model: Model, cache: Any) -> None:
        self.gpu, self.model, self.cache = gpu, model, cache
        self.graph: Any = None

    def run(self, step: Plan, token: torch.Tensor) -> torch.Tensor:
        """Logits of a step without emissions: those are launches of their own."""
        if self.graph is None:
            self.step, self.token = step, token.clone()
            self.graph = self.gpu.capture(self._launches)
        self.step.refill(step)
        self.token.copy_(token)
        with self.gpu.count() as counters:
            self.graph.replay()
        assert counters.syncs == 0 and counters.compiles == 0
        return self.logits.clone()

    def _launches(self) -> None:
        self.logits = self.model.logits(self.model.run(self.cache, self.step, self.token))


@pytest.mark.parametrize(("precision", "stored"), [("nvfp4_full", "plain"), ("native", "fp8"), ("native", "nvfp4")])
def test_a_captured_step_gives_the_bits_of_an_eager_one(gpu: Any, folder: Path, precision: str, stored: str) -> None:
    model, _ = bind(gpu, folder, precision, stored)
    results: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    replays = 0
    for captured, found in results.items():
        cache = model.new_cache(1, 256)
        graph = Graph(gpu, model, cache)
        sequence = cache.open()
        model.prefill(cache, [sequence], [PROMPT])
        for number in (3, 9, 27, 81, 243):
            cache.reserve([sequence], [1])
            step = plan(cache, [sequence], [1], static=True)
            token = torch.tensor([number], device=model.device)
            if captured and not step.emissions:
                found.append(graph.run(step, token))
                replays += 1
            else:
                found.append(model.logits(model.run(cache, step, token)))
            cache.advance([sequence], [1])
    assert replays >= 3
    for a, b in zip(results[False], results[True], strict=True):
        assert torch.equal(a, b) and bool(a.isfinite().all())


@pytest.mark.parametrize("flags", [(), ("--no-kernels",)])
def test_the_command_line_uses_kernels_and_can_be_told_not_to(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "220")
    told = ("--device", "cuda", "--precision", "nvfp4_full", "--max-new", "5", "--ignore-eos", "--report", "out")
    monkeypatch.chdir(tmp_path)
    assert cli.main((*told, *flags), lambda arch, on: Everything()) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("imimim")
    assert f"{0 if flags else 7} of 19 operations on kernels" in captured.err
    assert ("--no-kernels" in captured.err) == bool(flags)
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (found["per_token"]["kernels"] > 30) == (not flags) and found["per_token"]["syncs"] == 1
    assert (found["memory"]["packed"] > 3e6) == (not flags)
