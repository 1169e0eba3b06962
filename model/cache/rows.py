"""Preallocated pages of rows in one of the storage formats; a row is one entry of a cache.

Row `i` lies in page `i // per_page` at place `i % per_page`. Plain formats keep rows one after the other. The byte
formats keep a page's values first and its scales behind them, so appending takes one launch for each part: two, however
many rows.

    fp8 (512 values)    page = P x 576 bytes [448 E4M3][64 BF16], P x 8 bytes [7 UE8M0][pad], padded to a multiple of
    576
    fp8 (128 values)    page = P x 128 bytes E4M3, P x 4 bytes f32 scale
    fp4 (128 values)    page = P x 64 bytes E2M1, low nibble first, P x 4 bytes: 4 UE8M0
"""

from __future__ import annotations

from typing import Literal

import torch

from oracles.formats import index_entry, kv

Form = Literal["fp32", "bf16", "fp8", "fp4"]
FORMS: dict[str, tuple[Form, ...]] = {"entries": ("fp32", "bf16", "fp8"), "index": ("fp32", "bf16", "fp8", "fp4")}
PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}
INDEX_DIM = index_entry.DIM


class Rows:
    """`pages` pages of `per_page` rows of `width` values, zero at the start.

    A byte format wants the width that it is made for: 512 (fp8) or 128 (fp8, fp4).
    """

    def __init__(self, pages: int, per_page: int, width: int, form: Form, device: torch.device) -> None:
        self.pages, self.per_page, self.width, self.form = pages, per_page, width, form
        if form in PLAIN:
            self.data = torch.zeros(pages, per_page, width, dtype=PLAIN[form], device=device)
            return
        size = self._layout()
        self.data = torch.zeros(pages, size, dtype=torch.uint8, device=device)
        values, scales = self._bytes
        self._values = self.data.as_strided((pages, per_page, values), (size, values, 1))
        self._scales = self.data.as_strided((pages, per_page, scales), (size, scales, 1), per_page * values)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self.data.nbytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return self.data.nbytes // max(self.pages, 1)

    def append(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        """Write `values` [n, width] to the rows [n] (int64, all different): one launch for plain formats, two for
        bytes, after rounding to the format."""
        if self.form in PLAIN:
            self.data.flatten(0, 1).index_copy_(0, rows, values.to(self.data.dtype))
            return
        codes, scales = self._encode(values)
        page, place = rows // self.per_page, rows % self.per_page
        self._values[page, place] = codes
        self._scales[page, place] = scales

    def read(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Values [..., width] of rows [...] (int64, each within the pages)."""
        if self.form in PLAIN:
            return self.data.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, self.width).to(dtype)
        page, place = rows // self.per_page, rows % self.per_page
        return self._decode(self._values[page, place], self._scales[page, place], dtype)

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """`values` [..., width] as they would be read back, in their dtype."""
        if self.form in PLAIN:
            return values.to(self.data.dtype).to(values.dtype)
        if self.width != INDEX_DIM:
            return kv.rounded(values)
        return index_entry.rounded_fp8(values) if self.form == "fp8" else index_entry.rounded_fp4(values)

    def copy_page(self, source: int, target: int) -> None:
        """Copy a page onto another one."""
        self.data[target].copy_(self.data[source])

    def _layout(self) -> int:
        """Bytes of a page; sets the bytes of a row's values and scales."""
        if self.width != INDEX_DIM:
            self._bytes = (kv.DATA, kv.SCALES)
            return kv.page_bytes(self.per_page)
        form: index_entry.Form = "fp8" if self.form == "fp8" else "fp4"
        self._bytes = (index_entry.VALUES[form], index_entry.SCALES)
        return index_entry.page_bytes(self.per_page, form)

    def _encode(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.width != INDEX_DIM:
            entry = kv.quantize(values)
            rope = entry.rope.contiguous().view(torch.uint8)
            return torch.cat((entry.nope, rope), dim=-1), torch.nn.functional.pad(entry.scales, (0, 1))
        if self.form == "fp8":
            codes, scale = index_entry.quantize_fp8(values)
            return codes, scale[:, None].view(torch.uint8)
        return index_entry.quantize_fp4(values)

    def _decode(self, codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if self.width != INDEX_DIM:
            rope = codes[..., kv.NOPE :].contiguous().view(torch.bfloat16)
            return kv.dequantize(kv.Entry(codes[..., : kv.NOPE], scales[..., :-1], rope), dtype=dtype)
        if self.form == "fp8":
            return index_entry.dequantize_fp8(codes, scales.contiguous().view(torch.float32).squeeze(-1), dtype=dtype)
        return index_entry.dequantize_fp4(codes, scales, dtype=dtype)
