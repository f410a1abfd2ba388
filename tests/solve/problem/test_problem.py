"""What is no problem is refused at birth, by a message that names what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.solve import INFINITE, Problem, ProblemError
from eindecomp.solve.problem.arrays import Factor

LEAST = -(2**63)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def raw(**changes: Any) -> dict[str, Any]:
    """The arguments of a problem of three variables with 2, 3 and 1 choices, some changed."""
    arguments = {
        "offset": ints(0, 2, 5, 6),
        "unary": ints(4, 0, 1, 2, 3, 7),
        "edges": ints([0, 1], [2, 1]),
        "table_of": ints(1, 0),
        "table_offset": ints(0, 3, 9),
        "tables": ints(0, 1, 2, 3, 4, 5, 6, 7, INFINITE),
        "factors": (Factor((0, 1, 2), np.zeros((2, 3, 1), dtype=np.int64)),),
        "usage": ints(1, 2, 3, 4, 5, 6),
        "intervals": ints([0, 2], [1, 3], [1, 1]),
        "limit": 9,
    }
    return arguments | changes


def factor(scope: Any, table: Any) -> tuple[Factor]:
    return (Factor(scope, table),)


def cube(kind: type = np.int64) -> np.ndarray:
    return np.zeros((2, 3, 1), dtype=kind)


TYPES = [
    *[({name: None}, f"{name} must be a NumPy array, not NoneType") for name in list(raw())[:6]],
    *[({name: [1]}, f"{name} must be a NumPy array, not list") for name in list(raw())[:6]],
    ({"usage": [1]}, "usage must be a NumPy array, not list"),
    ({"intervals": [[0, 1]]}, "intervals must be a NumPy array, not list"),
    ({"offset": np.array([0.0, 2.0, 5.0, 6.0])}, "offset must be int64, not float64"),
    ({"offset": np.array([0, 2, 5, 6], dtype=np.int32)}, "offset must be int64, not int32"),
    ({"offset": np.array([0, 2, 5, 6], dtype=">i8")}, "offset must be int64, not >i8"),
    ({"offset": np.array(0)}, "offset must have 1 dimensions, not shape ()"),
    ({"unary": ints([1, 2])}, "unary must have 1 dimensions, not shape (1, 2)"),
    ({"unary": np.zeros(6, np.float32)}, "unary must be int64 or float64, not float32"),
    ({"edges": ints(0, 1)}, "edges must have 2 dimensions, not shape (2,)"),
    ({"edges": np.zeros((2, 2))}, "edges must be int64, not float64"),
    ({"table_of": ints([1, 0])}, "table_of must have 1 dimensions, not shape (1, 2)"),
    ({"table_offset": ints([0, 3, 9])}, "table_offset must have 1 dimensions, not shape (1, 3)"),
    ({"table_offset": np.array([0.0, 3.0, 9.0])}, "table_offset must be int64, not float64"),
    ({"tables": cube()}, "tables must have 1 dimensions, not shape (2, 3, 1)"),
    ({"tables": np.array(["a"])}, "tables must be int64 or float64, not <U1"),
    ({"usage": np.zeros(6, bool)}, "usage must be int64 or float64, not bool"),
    ({"intervals": np.zeros((3, 2))}, "intervals must be int64, not float64"),
    ({"factors": []}, "factors must be a tuple, not list"),
    ({"factors": None}, "factors must be a tuple, not NoneType"),
    ({"factors": (3,)}, "factor 0 must have a scope, a tuple of variables"),
    ({"factors": factor([0, 1, 2], cube())}, "factor 0 must have a scope, a tuple of variables"),
    ({"factors": factor((0, 1.0, 2), cube())}, "the scope of factor 0 must be integers"),
    ({"factors": factor((0, True, 2), cube())}, "the scope of factor 0 must be integers"),
    (
        {"factors": factor((0, 1, 2), [[[1]]])},
        "the table of factor 0 over (0, 1, 2) must be a NumPy array, not list",
    ),
    (
        {"factors": factor((0, 1, 2), cube(bool))},
        "the table of factor 0 over (0, 1, 2) must be int64 or float64, not bool",
    ),
    ({"limit": "9"}, "the usage limit must be a number, not str"),
    ({"limit": True}, "the usage limit must be a number, not bool"),
    ({"limit": ints(9)}, "the usage limit must be a number, not ndarray"),
]

VALUES = [
    ({"offset": ints()}, "offset must start at 0 and end at the number of unary costs, 6"),
    ({"offset": ints(1, 2, 5, 6)}, "offset must start at 0"),
    ({"offset": ints(0, 2, 5)}, "end at the number of unary costs, 6"),
    ({"offset": ints(0, 2, 2, 6)}, "variable 1 has no choices"),
    ({"offset": ints(0, 5, 2, 6)}, "variable 1 has no choices"),
    ({"offset": ints(0, INFINITE, LEAST, -1, 6)}, "variable 1 has no choices"),
    ({"edges": ints([0, 1, 2])}, "edges must be pairs of variables, not of shape (1, 3)"),
    ({"edges": ints([0, 1], [2, 3])}, "edge 1 joins [2, 3], of 3 variables"),
    ({"edges": ints([0, 1], [-1, 1])}, "edge 1 joins [-1, 1], of 3 variables"),
    ({"table_offset": ints()}, "table_offset must start at 0"),
    ({"table_offset": ints(1, 3, 9)}, "table_offset must start at 0"),
    ({"table_offset": ints(0, 3, 8)}, "end at the number of costs in tables, 9"),
    ({"table_offset": ints(0, 12, 9)}, "table_offset must not decrease, but does after table 1"),
    ({"table_of": ints(0)}, "2 edges but 1 tables"),
    ({"table_of": ints(1, 2)}, "edge 1 has table 2, of 2 tables"),
    ({"table_of": ints(-1, 0)}, "edge 0 has table -1, of 2 tables"),
    ({"table_of": ints(0, 0)}, "table of edge 0 (0, 1) has 3 costs, not 2 × 3"),
    ({"table_offset": ints(0, 3, 9, 9)}, "table 2 is empty"),
    ({"factors": factor((), np.array(1))}, "factor 0 has an empty scope"),
    (
        {"factors": factor((np.int64(0), np.int64(3), 1), cube())},
        "factor 0 over (0, 3, 1), of 3 variables",
    ),
    (
        {"factors": factor((np.int64(1), 0, 2), cube())},
        "factor 0 over (1, 0, 2) has shape (2, 3, 1), not (3, 2, 1)",
    ),
    ({"tables": np.zeros(9)}, "tables costs are float64 but unary costs are int64"),
    (
        {"factors": factor((0, 1, 2), cube(float))},
        "factor 0 costs are float64 but unary costs are int64",
    ),
    ({"unary": ints(LEAST, 0, 0, 0, 0, 0)}, "unary costs contain the least 64-bit integer"),
    ({"unary": ints(2**61, 0, 2**61, 0, 0, 0)}, "integer costs add up to more than 2**62"),
    ({"usage": None}, "usage, intervals and limit go together"),
    ({"intervals": None}, "usage, intervals and limit go together"),
    ({"usage": None, "intervals": None}, "usage, intervals and limit go together"),
    ({"usage": ints(1, 2)}, "2 usages for 6 choices"),
    ({"usage": ints(1, 2, 3, 4, 5, -6)}, "usages must be finite and not negative"),
    ({"usage": np.array([np.inf] * 6)}, "usages must be finite and not negative"),
    ({"usage": ints(2**61, 2**61, 0, 0, 0, 0)}, "usages add up to more than 2**62"),
    ({"intervals": ints([0, 1])}, "intervals must be 3 pairs, not (1, 2)"),
    ({"intervals": ints([0, 1], [3, 2], [0, 0])}, "the interval of variable 1 is [3, 2]"),
    ({"intervals": ints([0, 1], [0, 1], [-1, 0])}, "the interval of variable 2 is [-1, 0]"),
    ({"intervals": ints([0, 1], [0, 1], [0, 10**9])}, "time step 1000000000 is beyond 100000000"),
    ({"limit": -1}, "the usage limit must be 0 or more, not -1"),
    ({"limit": np.float64(-0.5)}, "the usage limit must be 0 or more, not -0.5"),
    ({"limit": float("nan")}, "the usage limit must be 0 or more, not nan"),
    ({"limit": 10**400}, "the usage limit is beyond 64 bits"),
]

ROWS = [[4, 0], [1, 2, 3]]
PACKED = [
    ({"unary": None}, "unary must be a sequence of arrays: 'NoneType' object is not iterable"),
    ({"unary": [[1, [2]]]}, "unary must be a sequence of arrays"),
    ({"unary": [3]}, "unary costs of variable 0 must be one-dimensional"),
    ({"unary": [["a"]]}, "costs must be numbers, not <U1"),
    ({"unary": [np.array([2**64 - 1])]}, "costs contain 18446744073709551615, which does not fit"),
    ({"unary": [[]]}, "variable 0 has no choices"),
    ({"unary": [[0.5, np.nan]]}, "unary costs contain NaN or -∞"),
    ({"unary": [[0.5, -np.inf]]}, "unary costs contain NaN or -∞"),
    ({"tables": 3}, "tables must be a sequence of arrays"),
    ({"edges": [[0], [0, 1]]}, "edges must be an array"),
    ({"edges": [(0.0, 1.0)]}, "edges must be integers, not float64"),
    ({"edges": None}, "edges must be integers, not object"),
    ({"edges": [[0, 1, 0], [1, 0, 1]]}, "edges must be pairs, not an array of shape (2, 3)"),
    ({"edges": [(0, 2)], "tables": [[[1]]]}, "edge 0 joins [0, 2], of 2 variables"),
    ({"edges": [(0, 1)]}, "1 edges but 0 tables"),
    ({"edges": [(0, 1)], "tables": [[[1]]], "table_of": [3]}, "edge 0 has table 3, of 1 tables"),
    (
        {"edges": [(0, 1)], "tables": [[[1]]], "table_of": [[0]]},
        "table_of must be one-dimensional, not of shape (1, 1)",
    ),
    (
        {"edges": [(0, 1)], "tables": [np.zeros((3, 2))]},
        "table of edge 0 (0, 1) has shape (3, 2), not (2, 3)",
    ),
    (
        {"edges": [(0, 1)], "tables": [np.zeros(6)]},
        "table of edge 0 (0, 1) has shape (6,), not (2, 3)",
    ),
    ({"factors": [3]}, "factors must be pairs of a scope and a table"),
    ({"factors": [((0, 1), [[1], [1, 2]])]}, "factors must be pairs of a scope and a table"),
    ({"factors": [((0.5, 1), [[1]])]}, "the scope of a factor must be integers, not float64"),
    ({"factors": [((0, 1), [[1]])]}, "factor 0 over (0, 1) has shape (1, 1), not (2, 3)"),
    ({"usage": 3}, "usage must be a sequence of arrays"),
    ({"usage": [[1, 2]]}, "1 rows of usage for 2 variables"),
    ({"usage": [[1, 2, 3], [4, 5]]}, "usage of variable 0 has shape (3,), not (2,)"),
    ({"usage": [["a", "b"], [1, 2, 3]]}, "usages must be numbers, not <U1"),
    ({"usage": [[1, np.inf], [1, 2, 3]]}, "usages must be finite and not negative"),
    (
        {"intervals": [[0, 1, 2], [0, 1, 2]]},
        "intervals must be pairs, not an array of shape (2, 3)",
    ),
    ({"intervals": [[0.0, 1.0], [0.0, 1.0]]}, "intervals must be integers, not float64"),
]


def test_the_arguments_that_all_cases_change_are_a_problem() -> None:
    problem = Problem(**raw())
    assert problem.cost_of([1, 0, 0]) == 0 + 1 + 7 + 6 + 0
    assert problem.cost_of([1, 2, 0]) == np.inf
    assert problem.usage_of([1, 0, 0]).tolist() == [2, 5, 3]


def refusal(make: Any, arguments: dict[str, Any]) -> str:
    with pytest.raises(ProblemError) as caught:
        make(**arguments)
    return str(caught.value)


@pytest.mark.parametrize(("changes", "message"), TYPES + VALUES)
def test_arrays_that_are_no_problem(changes: dict[str, Any], message: str) -> None:
    said = refusal(Problem, raw(**changes))
    assert message in said
    assert "np." not in said


@pytest.mark.parametrize(("changes", "message"), PACKED)
def test_parts_that_are_no_problem(changes: dict[str, Any], message: str) -> None:
    limited = {"usage": [[1, 2], [3, 4, 5]], "intervals": [[0, 1], [0, 1]], "limit": 9}
    parts = changes if "unary" in changes else {"unary": ROWS} | limited | changes
    said = refusal(Problem.of, parts)
    assert message in said
    assert "np." not in said


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ([0, 0], r"a choice is 3 integers, not int64\(2,\)"),
        ([0.0, 0.0, 0.0], r"a choice is 3 integers, not float64\(3,\)"),
        (None, r"a choice is 3 integers, not object\(\)"),
        ([[0], 0, 0], "a choice is 3 integers, not nested lists"),
        ([0, 3, 0], "variable 1 has no choice 3"),
        ([-1, 0, 0], "variable 0 has no choice -1"),
    ],
)
def test_choices_that_are_none(choice: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem(**raw()).cost_of(choice)


JUNK: list[Any] = [
    None, "ab", 3, -1, 2.5, np.nan, 2**70, [], [1, 2], {}, object(), (), (None,),
    ints(), ints(0), ints(0, 2, 5, 6), ints([0, 1]), ints([0, 1], [2, 1]), ints([0, 2]), cube(),
    np.array(3), np.array([0.5, np.nan]), np.array(["a"]), np.array([None]), np.zeros(6),
    np.zeros(9), np.zeros((2, 2)), np.full(9, INFINITE), np.full(6, LEAST), np.array([1 + 2j]),
    factor((0, 1), cube()), factor("ab", cube()), factor((0,), None), factor((9,), ints(1)),
]  # fmt: skip


def made(make: Any, arguments: dict[str, Any]) -> Problem | str:
    """The problem, or the message of the error it raises."""
    try:
        return make(**arguments)
    except ProblemError as error:
        return str(error)


def junk(names: list[str]) -> st.SearchStrategy[dict[str, int]]:
    """Which piece of junk goes where."""
    return st.dictionaries(st.sampled_from(names), st.integers(0, len(JUNK) - 1), max_size=3)


@settings(max_examples=settings.default.max_examples * 3)
@given(changes=junk(list(raw())))
def test_junk_is_refused_or_is_a_problem(changes: dict[str, int]) -> None:
    outcome = made(Problem, raw(**{name: JUNK[which] for name, which in changes.items()}))
    if isinstance(outcome, str):
        assert not re.search(r"np\.|array\(", outcome)
    else:
        assert outcome.cost_of(np.zeros(outcome.size, dtype=np.int64)) >= outcome.least


@settings(max_examples=settings.default.max_examples * 3)
@given(changes=junk(["unary", "edges", "tables", "factors", "table_of", *list(raw())[-3:]]))
def test_junk_to_pack_is_refused_or_is_a_problem(changes: dict[str, int]) -> None:
    parts = {name: JUNK[which] for name, which in changes.items()}
    outcome = made(Problem.of, {"unary": ROWS} | parts)
    if isinstance(outcome, str):
        assert not re.search(r"np\.|array\(", outcome)
    else:
        assert outcome.cost_of(np.zeros(outcome.size, dtype=np.int64)) >= outcome.least
