"""Loading: layer by layer, tensor by tensor, from mapped files straight into the wanted precision on the wanted device.

Nothing is returned before everything has been read and checked, so no half-loaded model exists. On the host, no more
than one tensor is held beside the model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from model.checkpoint import names
from model.checkpoint.check import check, form_of
from model.checkpoint.convert import to_nvfp4
from model.checkpoint.shards import Shards
from model.config import Config
from model.errors import CheckpointError
from model.weights import Form, Quantised, Spec, Weight, Weights, assemble, specs

Precision = Literal["fp32", "bf16", "native", "nvfp4", "nvfp4_full"]
PRECISIONS: dict[Precision, str] = {
    "fp32": "everything as f32 values",
    "bf16": "matrices as bf16 values; what the checkpoints keep in f32 stays f32",
    "native": "codes and scales as they are stored",
    "nvfp4": "routed experts in NVFP4 (exact from MXFP4), all else as it is stored",
    "nvfp4_full": "every linear and the output head in NVFP4, by this project's quantiser where no exact cast exists",
}


def load(
    folder: str | Path,
    config: Config | None = None,
    *,
    precision: Precision = "native",
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> tuple[Config, Weights]:
    """Read the checkpoint in `folder` with its config.json (or `config` instead).

    `progress` shows a bar of bytes on standard error. Raises CheckpointError (file, tensor, found, wanted)
    or ConfigError; ValueError for an unknown precision."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}; allowed: {', '.join(PRECISIONS)}")
    shards = Shards(folder)
    config = Config.load(folder) if config is None else config
    mtp = check(config, shards)
    total = sum(s.file.stat().st_size for s in {s.file: s for s in shards.stored.values()}.values())
    with _bar(progress, total) as advance:
        source = _Files(config, shards, specs(config, mtp), precision, torch.device(device), advance)
        return config, assemble(config, source, mtp)


def weights_from(
    config: Config, tensors: Mapping[str, torch.Tensor], *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Weights:
    """Weights from plain tensors by published name, matrices in `dtype`; shapes must be those of the configuration."""
    mtp = any(name.startswith("mtp.") for name in tensors)
    for name, spec in specs(config, mtp).items():
        if name not in tensors or tuple(tensors[name].shape) != spec.shape:
            found = list(tensors[name].shape) if name in tensors else "no such tensor"
            raise CheckpointError("tensors", name, found, list(spec.shape))
    return assemble(config, _Tensors(config, tensors, dtype, torch.device(device)), mtp)


class _Tensors:
    """`weights.Source` over a dictionary."""

    def __init__(
        self, config: Config, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config, self.tensors, self.dtype, self.device = config, tensors, dtype, device
        self.specs = specs(config)

    def weight(self, name: str) -> Weight:
        return self.plain(name)

    def plain(self, name: str) -> torch.Tensor:
        return self.tensors[name].to(self.device, _dtype(self.specs[name], self.dtype))

    def experts(self, prefix: str) -> tuple[Weight, Weight, Weight]:
        count = self.config.n_routed_experts
        w1, w3, w2 = (
            torch.stack([self.plain(f"{prefix}{e}.{w}.weight") for e in range(count)]) for w in ("w1", "w3", "w2")
        )
        return w1, w3, w2


def _dtype(spec: Spec, matrices: torch.dtype) -> torch.dtype:
    if spec.role == "table":
        return torch.int64
    return torch.float32 if spec.role in ("wide", "norm") else matrices


class _Files:
    """`weights.Source` over mapped shards."""

    def __init__(
        self,
        config: Config,
        shards: Shards,
        wanted: dict[str, Spec],
        precision: Precision,
        device: torch.device,
        advance: Callable[[int], None],
    ) -> None:
        self.config, self.shards, self.specs, self.device = config, shards, wanted, device
        self.precision, self.advance = precision, advance
        self.matrices = torch.float32 if precision == "fp32" else torch.bfloat16

    def weight(self, name: str) -> Weight:
        form = form_of(self.shards, name, self.specs[name])
        weight = self._stored(name, form)
        if self.precision == "nvfp4_full":
            return self._as_nvfp4([name], [weight])[0]
        return self._settled(weight)

    def plain(self, name: str) -> torch.Tensor:
        spec = self.specs[name]
        value = self._read(name).to(self.device, _dtype(spec, self.matrices), copy=True)
        if spec.role == "table":
            self._check_table(name, value)
        return value

    def experts(self, prefix: str) -> tuple[Weight, Weight, Weight]:
        count = self.config.n_routed_experts
        stacks: tuple[_Stack, _Stack, _Stack] = (_Stack(count), _Stack(count), _Stack(count))
        for e in range(count):
            wanted = [f"{prefix}{e}.{w}.weight" for w in ("w1", "w3", "w2")]
            for stack, value in zip(stacks, self._expert(wanted), strict=True):
                try:
                    stack.put(e, value)
                except ValueError as error:
                    found = self.shards.stored[wanted[stacks.index(stack)]]
                    raise CheckpointError(found.file, found.key, error, "the same format for all experts") from error
        w1, w3, w2 = (s.weight() for s in stacks)
        return w1, w3, w2

    def _expert(self, wanted: list[str]) -> list[Weight]:
        stored = [self._stored(name, form_of(self.shards, name, self.specs[name])) for name in wanted]
        if self.precision in ("nvfp4", "nvfp4_full"):
            pair, down = self._as_nvfp4(wanted[:2], stored[:2]), self._as_nvfp4(wanted[2:], stored[2:])
            return [*pair, *down]
        return [self._settled(w) for w in stored]

    def _as_nvfp4(self, wanted: list[str], weights: list[Weight]) -> list[Weight]:
        try:
            return list(to_nvfp4(*weights))
        except ValueError as error:
            found = self.shards.stored[wanted[0]]
            raise CheckpointError(found.file, found.key, error, "values that NVFP4 holds") from error

    def _settled(self, weight: Weight) -> Weight:
        if isinstance(weight, torch.Tensor):
            return weight.to(self.matrices)
        return weight.dense(self.matrices) if self.precision in ("fp32", "bf16") else weight

    def _stored(self, name: str, form: Form | None) -> Weight:
        data = self._read(name)
        if form is None:
            return data.to(self.device, copy=True)
        stem = name.removesuffix(".weight")
        codes = data.view(torch.uint8).to(self.device, copy=True)
        if form != "nvfp4":
            return Quantised(form, codes, self._scale(stem + names.PACKED_SCALE))
        inputs = stem + ".input_scale"
        return Quantised(
            form,
            codes,
            self._scale(stem + ".weight_scale"),
            self._scale(stem + ".weight_scale_2").reshape(()),
            self._scale(inputs).reshape(()) if inputs in self.shards.stored else None,
        )

    def _scale(self, name: str) -> torch.Tensor:
        """Scales as bytes or f32; NaN among them is an error, since it would spread without a trace."""
        data = self._read(name)
        value = data if data.dtype == torch.float32 else data.view(torch.uint8)
        codes_of_nan = {torch.float8_e4m3fn: (0x7F, 0xFF)}.get(data.dtype, (0xFF,))
        if name.endswith(".weight_scale"):
            codes_of_nan = (0x7F, 0xFF)
        bad = (
            value.isnan()
            if value.dtype == torch.float32
            else torch.isin(value, torch.tensor(codes_of_nan, dtype=torch.uint8))
        )
        if bool(bad.any()):
            found = self.shards.stored[name]
            raise CheckpointError(found.file, found.key, f"{int(bad.sum())} NaN scales", "finite scales")
        return value.to(self.device, copy=True)

    def _check_table(self, name: str, table: torch.Tensor) -> None:
        experts = self.config.n_routed_experts
        if table.numel() and (int(table.min()) < 0 or int(table.max()) >= experts):
            found = self.shards.stored[name]
            raise CheckpointError(
                found.file, found.key, f"expert ids {int(table.min())}..{int(table.max())}", f"0..{experts - 1}"
            )

    def _read(self, name: str) -> torch.Tensor:
        value = self.shards.read(name)
        self.advance(value.nbytes)
        return value


class _Stack:
    """One matrix of all experts, allocated when the first one is known."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.whole: Weight | None = None

    def put(self, e: int, value: Weight) -> None:
        """Copy expert `e` into its place; ValueError if it is stored in another format than the first one."""
        if self.whole is None:
            self.whole = self._like(value)
        whole = self.whole
        if isinstance(value, torch.Tensor) and isinstance(whole, torch.Tensor):
            whole[e].copy_(value)
            return
        if not (isinstance(value, Quantised) and isinstance(whole, Quantised) and value.form == whole.form):
            raise ValueError(f"{_form(value)} after {_form(whole)}")
        for part in ("data", "scales", "global_scale", "input_scale"):
            target, one = getattr(whole, part), getattr(value, part)
            if (target is None) != (one is None):
                raise ValueError(f"{part} in some experts only")
            if target is not None:
                target[e].copy_(one)

    def weight(self) -> Weight:
        """The finished stack."""
        return cast(Weight, self.whole)

    def _like(self, value: Weight) -> Weight:
        if isinstance(value, torch.Tensor):
            return value.new_empty((self.count, *value.shape))
        parts = (value.data, value.scales, value.global_scale, value.input_scale)
        empty = [None if t is None else t.new_empty((self.count, *t.shape)) for t in parts]
        return Quantised(value.form, cast(torch.Tensor, empty[0]), cast(torch.Tensor, empty[1]), empty[2], empty[3])


def _form(weight: Weight) -> str:
    return weight.form if isinstance(weight, Quantised) else str(weight.dtype).removeprefix("torch.")


def _bar(show: bool, total: int) -> AbstractContextManager[Callable[[int], None]]:
    if not show:
        return nullcontext(lambda _: None)
    return _Bar(total)


class _Bar:
    """A bar of bytes read; `with` gives the function that moves it."""

    def __init__(self, total: int) -> None:
        self.total = total
        columns = (TextColumn("loading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.task = self.progress.add_task("load", total=total)

    def __enter__(self) -> Callable[[int], None]:
        self.progress.start()
        return lambda n: self.progress.advance(self.task, n)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # headers and padding are not read as tensors
            self.progress.update(self.task, completed=self.total)
        self.progress.stop()
