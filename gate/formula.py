"""Arithmetic over the fields of a case: the `bytes` and `operations` of a roofline, the `bytes` of a bench."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_SUM = "sum"


def evaluate(text: str, fields: Mapping[str, Any]) -> float:
    """The value of the formula, `fields` giving its names.

    Raises:
        ValueError: if it is not arithmetic, or a name is not a number in `fields`.
    """
    return float(_value(_parse(text).body, fields, text))


def _parse(text: str) -> ast.Expression:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"'{text}' is not arithmetic: {error.msg}") from None
    _check(tree.body, text)
    return tree


def _check(node: ast.AST, text: str) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left, text)
        _check(node.right, text)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        _check(node.operand, text)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        for argument in node.args:
            _check(argument, text)
    elif _is_sum(node):
        return
    elif not (isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))):
        raise ValueError(
            f"'{text}' is not arithmetic: allowed are + - * / // %, min, max, sum(FIELD), numbers and case fields"
        )


def _is_sum(node: ast.AST) -> bool:
    """`sum(n)`: of a field that is a list; a number is its own sum."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        return False
    return node.func.id == _SUM and len(node.args) == 1 and isinstance(node.args[0], ast.Name)


def _value(node: ast.AST, fields: Mapping[str, Any], text: str) -> Any:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, fields, text), _value(node.right, fields, text))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, fields, text))
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        if node.func.id == _SUM:
            return sum(_numbers(node.args[0], fields, text))
        return _FUNCTIONS[node.func.id](*(_value(a, fields, text) for a in node.args))
    if isinstance(node, ast.Name):
        value = fields.get(node.id)
        if not isinstance(value, int | float):
            raise ValueError(f"'{text}' needs the field '{node.id}' as a number, got {value!r}")
        return value
    assert isinstance(node, ast.Constant)
    return node.value


def _numbers(node: ast.AST, fields: Mapping[str, Any], text: str) -> list[Any]:
    """The numbers of the field that `node` names."""
    assert isinstance(node, ast.Name)
    value = fields.get(node.id)
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(item, int | float) for item in listed):
        raise ValueError(f"'{text}' needs the field '{node.id}' as numbers, got {value!r}")
    return listed
