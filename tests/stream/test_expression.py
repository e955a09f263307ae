"""Expressions, and the arguments that functions take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest
from penstock.stream.context import Context
from penstock.stream.expression import (
    check_expression,
    column_text,
    is_column,
    is_frame,
    is_python,
    takes_context,
)
from tests.stream.spark_doubles import COLUMN, FRAME


class Callee:
    def __call__(self, event: Any) -> Any:
        return event

    def method(self, event: Any, ctx: Context) -> Any:
        return event, ctx


def with_default(event: Any, factor: int = 2) -> Any:
    return event, factor


def three(event: Any, ctx: Any, more: Any) -> Any:
    return event, ctx, more


def keyword(event: Any, *, rate: int) -> Any:
    return event, rate


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize(
    "function",
    [
        lambda event: event,
        lambda *args: args,
        lambda event, *rest: (event, rest),
        with_default,
        Callee(),
        functools.partial(three, 1, 2),
        functools.partial(keyword, rate=3),
        wrapped(with_default),
        dict,
        print,
        len,
    ],
)
def test_function_of_one_argument_takes_no_context(function: Callable[..., Any]) -> None:
    assert takes_context(function) is False


@pytest.mark.parametrize(
    "function",
    [
        lambda event, ctx: (event, ctx),
        lambda event, whatever: (event, whatever),
        lambda event, ctx=None: (event, ctx),
        lambda event, context=None: (event, context),
        Callee().method,
        functools.partial(three, 1),
        wrapped(lambda event, ctx: (event, ctx)),
    ],
)
def test_function_of_two_arguments_takes_a_context(function: Callable[..., Any]) -> None:
    assert takes_context(function) is True


@pytest.mark.parametrize("function", [lambda: 1, lambda **fields: fields, three, keyword])
def test_function_with_other_parameters_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"filter: \w+ must take an event.*def f\(event, ctx\)"):
        check_expression(function, "filter")


async def waits(event: Any) -> Any:
    return event


class Waits:
    async def __call__(self, event: Any) -> Any:
        return event


@pytest.mark.parametrize("function", [waits, functools.partial(waits), Waits(), Waits().__call__])
def test_async_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"map takes a plain function.*only \.enrich\(f\) awaits"):
        check_expression(function, "map")


@pytest.mark.parametrize("value", [None, 7, True, b"a > 1", ["a"], {"a": "b"}, object(), FRAME])
def test_values_that_are_no_expression_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match="filter must be SQL text, a Spark Column or a function"):
        check_expression(value, "filter")


@pytest.mark.parametrize("text", ["", " \n", "a > (1", "a = 'x", "a; b"])
def test_invalid_sql_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="amount > 10"):
        check_expression(text, "filter")


def test_columns_and_frames_are_recognized_without_spark() -> None:
    assert is_column(COLUMN)
    assert not is_python(COLUMN)
    assert check_expression(COLUMN, "filter") is COLUMN
    assert is_frame(FRAME)
    assert not is_column("a")


def test_column_text_does_not_depend_on_the_numbers_of_lambda_variables() -> None:
    text = "Column<'aggregate(xs, 0, (x_{}, y_{}) -> +(x_{}, y_{}))'>"
    assert column_text(text.format(1, 2, 1, 2)) == column_text(text.format(17, 18, 17, 18))
    assert column_text("Column<'+(x_7, 1)'>") == "+(x_7, 1)"
