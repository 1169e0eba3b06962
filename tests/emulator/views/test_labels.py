"""Names of fields, warps, barriers: what is accepted, and how they are used."""

from __future__ import annotations

import pytest

from emulator.views.labels import Field, Labels, Pipeline, ViewError


def test_fields_take_three_or_four_values_and_come_in_order():
    labels = Labels.of({"S": (0, 128, "f32"), "P": (0, 64, "f16", "st"), "x": (511, 1)})
    assert labels.fields == (Field("S", 0, 128), Field("P", 0, 64, "f16", "st"), Field("x", 511, 1))
    assert labels.field("P").end == 64


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ((0,), r"fields\['S'\] = \(0,\); allowed: \(column, columns, dtype\)"),
        ("f32", "allowed: "),
        ((500, 13), "column=500, columns=13; allowed: inside 0..511"),
        ((-1, 4), "allowed: inside 0..511"),
        ((0, 0), "columns=0"),
        ((0, 4, "f31"), "dtype='f31'; allowed: f32, u32"),
        ((0, 4, "f32", "warp"), "writer='warp'; allowed: '', 'mma', 'st', 'cp'"),
    ],
)
def test_wrong_fields_are_refused_by_name(spec, message):
    with pytest.raises(ViewError, match=message):
        Labels.of({"S": spec})


def test_unknown_fields_and_double_barriers_are_refused():
    with pytest.raises(ViewError, match="no tensor-memory field 'Q'; fields: S"):
        Labels.of({"S": (0, 4)}).field("Q")
    with pytest.raises(ViewError, match="fields: none"):
        Labels.of().field("Q")
    with pytest.raises(ViewError, match="'a' is named twice"):
        Labels.of(barriers=["a", "b", "a"])


def test_warps_and_barriers_fall_back_to_numbers():
    labels = Labels.of(roles={3: "mma"}, barriers=["a", "b"])
    assert (labels.warp(3), labels.warp(4), labels.role(4)) == ("mma (3)", "warp 4", "")
    assert labels.barrier_names([16, 8]) == {8: "a", 16: "b"}
    assert labels.barrier_names([8]) == {8: "mbarrier 0x8"}


def test_pipelines_are_spelt_by_the_names_of_their_barriers():
    labels = Labels.of(barriers=["k.full[0]", "k.full[1]", "k.empty[0]", "k.empty[1]", "done", "o.full[0]"])
    offsets = [8 * n for n in range(6)]
    assert labels.pipelines(offsets) == [Pipeline("k", (0, 8), (16, 24)), Pipeline("o", (40,), ())]
    assert labels.pipelines(offsets[:5]) == []
