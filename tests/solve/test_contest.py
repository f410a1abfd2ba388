from __future__ import annotations

import copy
import gzip
import json

import numpy as np
import pytest

from eindecomp.solve import INFINITE, ProblemError, minimize, read_contest, solution_json

SMALL = {
    "problem": {
        "name": "ours",
        "nodes": {
            "intervals": [[0, 2], [1, 3]],
            "costs": [[5, 1], [0, 10**18]],
            "usages": [[1, 4], [2, 2]],
        },
        "edges": {"nodes": [[0, 1]], "costs": [[0, 0, 7, 10**18]]},
        "usage_limit": 6,
    }
}


def _write(path, document):
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_reads_gzip_and_plain_alike(tmp_path):
    plain = tmp_path / "a.json"
    plain.write_text(json.dumps(SMALL))
    for path in (_write(tmp_path / "a.json.gz", SMALL), plain):
        problem = read_contest(path)
        assert problem.domains.tolist() == [2, 2]
        assert problem.unary.tolist() == [5, 1, 0, INFINITE]
        assert problem.cost_of([0, 0]) == 5
        assert problem.usage_of([1, 0]).tolist() == [4, 6, 2]


def test_solution_file_holds_cost_bound_and_choices(tmp_path):
    solution = minimize(read_contest(_write(tmp_path / "a.json.gz", SMALL)))
    written = json.loads(solution_json(solution, feasible=True))
    assert written == {"cost": 5, "bound": 5, "feasible": True, "solution": [0, 0]}


def _without(*path):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def _with(value, *path):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("problem"), "'problem'"),
        (_without("problem", "nodes", "costs"), "'costs'"),
        (_with("six", "problem", "usage_limit"), "'usage_limit'"),
        (_with(-1, "problem", "usage_limit"), "0 or more"),
        (_with([[5, 1]], "problem", "nodes", "costs"), "differ in length"),
        (_with([[5, 1.5], [0, 1]], "problem", "nodes", "costs"), "other than integers"),
        (_with([[5, True], [0, 1]], "problem", "nodes", "costs"), "other than integers"),
        (_with([[5, 1], 3], "problem", "nodes", "costs"), "not a list"),
        (_with([[], []], "problem", "nodes", "costs"), "differ in length"),
        (_with([[0, 2, 3]], "problem", "edges", "nodes"), "not a pair"),
        (_with([[0, 2]], "problem", "edges", "nodes"), "of 2 variables"),
        (_with([[0, 0, 7]], "problem", "edges", "costs"), "3 costs"),
        (_with([], "problem", "edges", "costs"), "1 edges but 0 tables"),
        (_with([[3, 1], [0, 1]], "problem", "nodes", "intervals"), "start ≤ end"),
        (_with([[1, -4], [2, 2]], "problem", "nodes", "usages"), "not negative"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, message):
    document = copy.deepcopy(SMALL)
    change(document)
    with pytest.raises(ProblemError, match=message):
        read_contest(_write(tmp_path / "bad.json.gz", document))


@pytest.mark.parametrize("content", [b"", b"{", b"\x1f\x8bbroken", b"[1, 2]", b"\x80\x04K\x01."])
def test_what_is_no_instance_is_refused(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=r"bad\.json"):
        read_contest(path)


def test_nan_is_no_json(tmp_path):
    path = tmp_path / "nan.json"
    path.write_text(json.dumps(SMALL).replace("6}", "NaN}"))
    with pytest.raises(ProblemError, match="not JSON"):
        read_contest(path)


def test_costs_stay_exact_integers(tmp_path):
    document = copy.deepcopy(SMALL)
    document["problem"]["nodes"]["costs"] = [[2**58 + 1, 2**58 + 3], [0, 1]]
    problem = read_contest(_write(tmp_path / "big.json.gz", document))
    assert problem.cost_of(np.array([0, 0])) == 2**58 + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(json.dumps(SMALL).encode())[:-9], "cannot be inflated: .* ended before"),
        (gzip.compress(json.dumps(SMALL).encode()) + b"rest", "cannot be inflated"),
        (b"[" + b"[],\n" * (1 << 21) + b"0]", "2,097,153 lists, but at most 2,097,152 are allowed"),
        (b"[" + b"0," * (1 << 24 | 1) + b"0]", "16,777,217 entries, but at most 16,777,216 are"),
        (b'{"a":' * 1001, "1,001 objects, but at most 1,000"),
    ],
)
def test_what_would_take_much_memory_is_refused_before_it_does(tmp_path, content, message):
    path = tmp_path / "large.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=message):
        read_contest(path)


@pytest.mark.parametrize("before", [b"", gzip.compress(b"0", mtime=0) * 2])
def test_what_inflates_to_much_is_refused_before_it_does(tmp_path, monkeypatch, before):
    monkeypatch.setattr("eindecomp.solve.contest._MAX_BYTES", 10**6)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(before + gzip.compress(b" " * 10**7))
    with pytest.raises(ProblemError, match="larger than 1000000 bytes"):
        read_contest(path)


def test_a_file_may_be_gzipped_in_parts(tmp_path):
    text = json.dumps(SMALL).encode()
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(text[:40]) + gzip.compress(text[40:]))
    assert read_contest(path).domains.tolist() == [2, 2]
