"""`eindecomp bench`: what it prints and writes, and that our plans move least."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from eindecomp.cli import main

STRATEGIES = {
    "chain": {"sqrt", "rows"},
    "ffnn": {"sqrt", "data", "zero", "megatron", "megatron, classes cut"},
    "llama": {"sqrt", "data", "context", "ulysses", "attention", "megatron"},
}
PEERS: dict[str, set[str]] = {"chain": {"NumPy"}, "ffnn": set(), "llama": set()}


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command in this process; its exit status."""
    monkeypatch.setattr(sys, "argv", ["eindecomp", "bench", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")  # in which names are not broken
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


@pytest.mark.long
@pytest.mark.parametrize("experiment", list(STRATEGIES))
def test_an_experiment_from_command_to_files(
    experiment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "new" / "folder"
    assert bench(monkeypatch, experiment, "--quick", "--output", folder) == 0
    shown = capsys.readouterr().out
    record = json.loads((folder / f"{experiment}.json").read_bytes())
    assert (record["experiment"], record["quick"]) == (experiment, True)
    check_machine(record["machine"])
    check_times(record["findings"]["timed"], experiment, shown)
    check_bytes(record["findings"]["priced"], STRATEGIES[experiment])
    for curve in record["findings"]["curves"]:
        assert len(curve["losses"]) == (6 if curve["name"] in STRATEGIES["ffnn"] else 20)
        assert curve["apart"] < 1e-4


def check_machine(machine: dict[str, Any]) -> None:
    assert machine["cores"] >= 1
    assert machine["memory"] > 1 << 20
    assert machine["cpu"]
    assert machine["blas"]
    assert {"python", "numpy", "eindecomp"} <= set(machine["versions"])


def check_times(rows: list[dict[str, Any]], experiment: str, shown: str) -> None:
    """Everybody is there, computes the same, and our plans move what they say."""
    for row in rows:
        assert row["name"] in shown
        if row["absent"] is not None:
            assert row["absent"] in shown
            continue
        assert row["error"] < 1e-4
        assert row["ratio"] > 0
        assert row["timing"]["best"] <= row["timing"]["median"]
        if row["kind"] != "peer":
            assert row["bytes_counted"] == row["plan_cost"]
    assert {row["name"] for row in rows if row["kind"] == "peer"} == PEERS[experiment]
    strategies = {row["name"] for row in rows if row["kind"] == "strategy"}
    assert strategies == STRATEGIES[experiment]


def check_bytes(rows: list[dict[str, Any]], strategies: set[str]) -> None:
    """EinDecomp's plan moves no more than any baseline, and the ratio says how much less."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        key = row["case"], row["inputs"], row["devices"]
        groups.setdefault(key, {})[row["name"]] = row
    assert {key[2] for key in groups} == {2, 4, 8}
    for found in groups.values():
        # A batch of one is not cut.
        less = {"data"} if any("b = 1," in row["case"] for row in found.values()) else set[str]()
        assert set(found) == strategies - less | {"eindecomp"}
        ours = found["eindecomp"]["bytes_counted"]
        for row in found.values():
            assert row["plan_cost"] == row["bytes_counted"] >= ours
            if ours:
                assert row["ratio"] == row["bytes_counted"] / ours
            else:
                assert row["ratio"] == (None if row["bytes_counted"] else 1)


def test_output_that_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert bench(monkeypatch, "chain", "--quick", "-o", folder) == 1
        assert str(tmp_path / "file") in capsys.readouterr().err


def test_output_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chain.json").mkdir()
    assert bench(monkeypatch, "chain", "--quick", "-o", tmp_path) == 1
    assert "chain.json" in capsys.readouterr().err


def test_an_experiment_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench(monkeypatch, "nothing") == 2
