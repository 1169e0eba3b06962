"""The committed JSON Schema, and counts."""

from __future__ import annotations

import json

import pytest

from gate.document import read
from gate.schema import count_allows, json_schema

jsonschema = pytest.importorskip("jsonschema")


def test_committed_json_schema_is_that_of_the_models(root):
    assert (root / "gate" / "gates.schema.json").read_text() == json_schema()


@pytest.mark.parametrize(
    ("gate", "valid"),
    [
        ({"about": "a claim here", "state": "planned"}, True),
        ({"about": "a claim here"}, False),
        ({"about": "a claim here", "cases": [{"id": "a", "m": 1}], "limits": {"y": {"cos": 0.9}}}, True),
        ({"about": "a claim here", "cases": [{"m": 1}], "limits": {"y": {"cos": 0.9}}}, False),
        ({"about": "a claim here", "cases": [{"id": "a"}], "limits": {"y": {"cosine": 0.9}}}, False),
        ({"about": "a claim here", "state": "planned", "launches": "<= 2"}, True),
        ({"about": "a claim here", "state": "planned", "launches": "2"}, False),
        ({"about": "a claim here", "state": "planned", "falsified_by": {"m": ["hang"]}}, True),
        ({"about": "a claim here", "state": "planned", "falsified_by": {"m": "bad"}}, False),
    ],
)
def test_json_schema_says_the_same_as_the_loader(gate, valid):
    schema = json.loads(json_schema())
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors({"version": 1, "gates": {"a": gate}}))
    assert (not errors) == valid, errors


def test_gates_yaml_of_this_tree_obeys_the_json_schema(root):
    data = read((root / "gates.yaml").read_text(), "gates.yaml").data
    jsonschema.Draft202012Validator(json.loads(json_schema())).validate(data)


@pytest.mark.parametrize(
    ("limit", "measured", "allowed"),
    [(0, 0, True), (0, 1, False), (2, 1, False), (2, 2, True), ("<= 2", 0, True), ("<=2", 2, True), ("<= 2", 3, False)],
)
def test_count_limit_is_exact_unless_it_says_at_most(limit, measured, allowed):
    assert count_allows(limit, measured) == allowed
