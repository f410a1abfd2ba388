"""`benchmarks/gpu.py`: the whole script on the CPU, on tiny sizes."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eindecomp.experiments.record import LossCurve, Timing

torch = pytest.importorskip("torch", reason="torch is not installed")

from on_gpu import tables  # noqa: E402
from on_gpu.record import GpuRecord, Measured, Memory, Row, Speed, read_records  # noqa: E402
from on_gpu.sizes import QUICK  # noqa: E402
from on_gpu.weight_block import WeightBlock  # noqa: E402
from peers.ceiling import run_ceiling  # noqa: E402

from gpu import main  # noqa: E402

PROGRAM = """
print("register 0 4.8 s")
print("stream 4 16 slots 2 compiled 12 ms peak 2.2 GB")
print("stream 4 16 slots 4 compiled 11 ms peak 3.2 GB")
print("resident 2 16 compiled 3 ms peak 1.2 eager 4 ms 1.3")
"""
LIMITED = ("Weights in the host's memory", "Larger models")


@dataclass(frozen=True)
class Ran:
    """What the command did."""

    status: int
    shown: str
    told: str


def bench(*arguments: object) -> Ran:
    """Run the script in this process, on the CPU."""
    shown, told = io.StringIO(), io.StringIO()
    with redirect_stdout(shown), redirect_stderr(told):
        status = main(["--device", "cpu", *map(str, arguments)])
    return Ran(status, shown.getvalue(), told.getvalue())


@pytest.mark.long
def test_all_tables_from_command_to_files(tmp_path: Path) -> None:
    program = tmp_path / "reached.py"
    program.write_text(PROGRAM)
    ran = bench("--quick", "-o", tmp_path, "--ceiling", program)
    assert ran.status == 0, ran.told
    assert "prefill of 2x16: eindecomp" in ran.told  # while the others were measured
    rows = rows_of(tmp_path)
    check_tables(rows, ran.shown)
    check_absent_packages(rows)
    check_limits(rows)
    check_floors(rows)
    check_record(json.loads((tmp_path / "gpu.json").read_bytes()))
    trace = json.loads(gzip.decompress((tmp_path / "gpu.trace.json.gz").read_bytes()))
    assert "X" in {event["ph"] for event in trace["traceEvents"]}
    assert "gpu.trace.json.gz is a trace of one run of ours" in ran.shown
    check_drawn_later(tmp_path / "gpu.json", tmp_path / "later")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "gpu.json").read_bytes())["measured"]["rows"]


def check_tables(rows: list[dict[str, Any]], shown: str) -> None:
    """Every table is measured, and everybody computes the same."""
    cases = list(tables.cases_of(QUICK))
    assert {row["table"] for row in rows} == {case.title for case in cases}
    assert len({(row["table"], row["case"]) for row in rows}) == len(cases)
    for row in rows:
        if row["absent"] is not None:
            assert row["kind"] == "peer"
            assert f"{row['name']} is absent: {row['absent']}" in shown
            continue
        assert row["ratio"] > 0
        assert row["error"] is None or row["error"] < 1e-4
        assert row["agreement"] in (None, 1.0)
    for case in {row["case"] for row in rows}:
        kinds = {row["kind"] for row in rows if row["case"] == case and row["timing"]}
        assert {"ours", "peer"} <= kinds


def check_absent_packages(rows: list[dict[str, Any]]) -> None:
    reasons = {row["name"]: row["absent"] for row in rows}
    for package, name in {
        "accelerate": "accelerate cpu_offload",
        "deepspeed": "DeepSpeed ZeRO-Inference",
        "flexllmgen": "FlexGen",
    }.items():
        try:
            __import__(package)
        except ImportError:
            assert reasons[name] == f"{package} is not installed"


def check_limits(rows: list[dict[str, Any]]) -> None:
    """Paged runs tell what was expected and what was taken."""
    ours = [row for row in rows if row["kind"] == "ours" and row["table"] in LIMITED]
    paged = [row for row in ours if "training" not in row["case"]]
    assert len(paged) == 4
    for row in paged:
        assert row["predicted"] > 0
        assert 0 < row["memory"]["peak"] <= row["memory"]["limit"]


def check_floors(rows: list[dict[str, Any]]) -> None:
    """Floors, and the program beside, are ratios to ours."""
    found = {row["case"]: row for row in rows if row["name"] == "reached.py, on its own"}
    assert [row["timing"]["best"] for row in found.values()] == [0.003, 0.012]
    floors = [row for row in rows if row["kind"] == "floor"]
    assert len(floors) >= 6
    for row in [*found.values(), *floors]:
        ours = next(r for r in rows if r["case"] == row["case"] and r["kind"] == "ours")
        assert row["ratio"] == pytest.approx(row["timing"]["best"] / ours["timing"]["best"])


def check_record(record: dict[str, Any]) -> None:
    """It says that this is no GPU."""
    assert (record["device"], record["quick"]) == ("cpu", True)
    assert record["machine"]["versions"]["torch"] == torch.__version__
    assert any("none of these figures is a GPU's" in note for note in record["measured"]["notes"])
    losses = {curve["name"]: curve["apart"] for curve in record["measured"]["curves"]}
    assert len(losses) == 2
    assert max(losses.values()) < 1e-4


def check_drawn_later(given: Path, folder: Path) -> None:
    """Pictures are drawn later, of several runs at once."""
    ran = bench("--from", given, "--from", given, "-o", folder)
    assert ran.status == 0, ran.told
    assert len(rows_of(folder)) == 2 * len(rows_of(given.parent))
    tree = ElementTree.parse(folder / "gpu.svg")  # noqa: S314 - written above
    assert tree.getroot().tag.endswith("svg")


def test_without_matplotlib_the_json_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("plot", "on_gpu.draw"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    ran = bench("--quick", "--only", "joins/L-infinity", "-o", tmp_path)
    assert ran.status == 0, ran.told
    assert "no pictures" in ran.told
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
    assert {row["case"] for row in rows_of(tmp_path)} == {"L-infinity, 48³"}


@pytest.mark.long
def test_a_case_that_fails_is_told_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "QUICK", replace(QUICK, larger_limit="64MiB"))
    ran = bench("--quick", "--only", "larger,joins/squared-L2", "-o", tmp_path)
    assert ran.status == 1
    assert "of ours, some could not be measured: larger/1x16" in ran.told
    failed, *others = rows_of(tmp_path)
    assert "bytes are missing" in failed["absent"]
    assert {row["case"] for row in others} == {"squared L2, 48³"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quick", "--only", "decoed"), "there is no table 'decoed'"),
        (("--quick", "--ceiling", "nowhere.py"), "there is no program nowhere.py"),
        (("--from", __file__), "is no record of a GPU"),
        ((), "there is no GPU to measure"),
    ],
)
def test_what_is_refused(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    ran = bench(*arguments, "-o", tmp_path)
    assert ran.status == 1
    assert message in ran.told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('no card here')", "it printed no time of a prompt; it said: no card here"),
        ("print('no card')\nraise SystemExit(3)", "it ended with status 3; it said: no card"),
        ("raise SystemExit(3)", "it ended with status 3; it said: nothing"),
    ],
)
def test_a_program_that_fails_is_absent_with_the_reason(
    code: str, reason: str, tmp_path: Path
) -> None:
    program = tmp_path / "failing.py"
    program.write_text(code)
    options = ("--only", "resident/2x16", "--ceiling", program)
    ran = bench("--quick", *options, "-o", tmp_path)
    assert ran.status == 0, ran.told
    reasons = {row["name"]: row["absent"] for row in rows_of(tmp_path)}
    assert reasons["failing.py, on its own"] == reason
    assert f"failing.py, on its own is absent: {reason}" in ran.shown


def test_times_that_a_failing_program_printed_count(tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text(f"{PROGRAM}\nraise SystemExit(3)")
    found = run_ceiling(program)
    assert found.resident == {"2x16": 0.003}
    assert found.failure is not None
    assert "it ended with status 3" in found.failure


def test_weights_lie_side_by_side_and_layers_are_pieces_of_them() -> None:
    block = WeightBlock.random(QUICK.model, torch.device("cpu"))
    parts = [part for _, part in block.tensors.values()]
    assert torch.equal(torch.cat([part.flatten() for part in parts]), block.memory)
    assert len(block.layers) == QUICK.model.layers
    for number, layer in enumerate(block.layers):
        own = [part for name, (_, part) in block.tensors.items() if name.endswith(str(number))]
        assert layer.data_ptr() == own[0].data_ptr()
        assert layer.numel() == sum(part.numel() for part in own)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    timed = Row(
        "case", "ours", "ours", 1, Timing(1.0, 2.0, 3.0, 4), 1.0, 5, 6, 0.5,
        table="table", agreement=0.5, predicted=2.0, memory=Memory(3, 2, 1),
    )  # fmt: skip
    absent = Row("case", "peer", "peer", absent="gone")
    curve = LossCurve("ours", (2.0, 1.0), 0.0)
    measured = Measured((timed, absent), (curve,), (Speed("link", 1.0, "GB/s"),), ("note",))
    record = GpuRecord.of(True, "cpu", 1.0, measured)
    path = tmp_path / "gpu.json"
    path.write_bytes(record.json())
    assert read_records([path]) == record
