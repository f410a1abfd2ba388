"""`eindecomp run`: from files to files."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import eindecomp as ed
from eindecomp.cli import main, request
from eindecomp.cli.run import largest_error, random_inputs, write_npz
from eindecomp.engines.threads.engine import ThreadsProgram
from eindecomp.engines.whole_files import write_whole

TEXT = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "matmul.ein"
    path.write_text(TEXT)
    return path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["eindecomp", "run", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    return exit_.value.code or 0


def test_random_inputs_are_checked(file, monkeypatch, capsys):
    assert run(monkeypatch, file, "-p", 2, "--random", "--check") == 0
    shown = capsys.readouterr().out
    assert "tasks on" in shown
    assert "Z[i,k]" in shown


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "bool", "complex64"])
def test_random_inputs_are_drawn_in_their_type(dtype):
    graph = ed.parse(f"input X[i: 1000, j: 1000] {dtype}\nZ[i,j] <- X[i,j]\noutput Z")
    tracemalloc.start()
    found = random_inputs(graph, 0)["X"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.dtype == graph["X"].dtype
    assert len(np.unique(found.ravel()[:100])) > 1
    narrow = 0 if found.dtype in (np.float32, np.float64, np.int8, np.bool_) else 4
    assert peak < (found.dtype.itemsize + narrow) * 1e6 + 1e6


def test_inputs_too_large_for_any_memory_are_one_line(tmp_path, monkeypatch, capsys):
    side = 2**28
    file = tmp_path / "huge.ein"
    file.write_text(f"input X[i: {side}, j: {side}]\nz[] <- sum X[i,j]\noutput z")
    assert run(monkeypatch, file, "-p", 2, "--random") == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("eindecomp: no memory for random numbers as X[i,j]: ")
    assert "Unable to allocate" in line


def test_memory_that_runs_out_is_a_message(file, monkeypatch, capsys):
    def fail(*_args, **_more):
        raise MemoryError("Unable to allocate 9.00 GiB")

    monkeypatch.setattr("eindecomp.cli.run.run_plan", fail)
    assert run(monkeypatch, file, "-p", 2, "--random") == 1
    assert capsys.readouterr().err == "eindecomp: out of memory: Unable to allocate 9.00 GiB\n"


def test_files_go_in_and_come_out(file, tmp_path, monkeypatch, capsys):
    x, y = np.arange(24, dtype=np.float32).reshape(4, 6), np.ones((6, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "data.npz", X=x, Y=y)
    out, trace = tmp_path / "out.npz", tmp_path / "trace.json"
    assert run(monkeypatch, file, "-p", 2, "--data", tmp_path / "data.npz", "-o", out,
               "--trace", trace, "--json") == 0  # fmt: skip
    assert np.array_equal(np.load(out)["Z"], x @ y)
    record = json.loads(capsys.readouterr().out)
    assert record["outputs"] == {"Z": {"shape": [4, 4], "dtype": "float32"}}
    events = json.loads(trace.read_text())["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {"device 0", "device 1"}
    assert sum(e["ph"] == "X" and e["cat"] != "compile" for e in events) == record["tasks"]


def test_a_saved_plan_runs(file, tmp_path, monkeypatch):
    ed.plan(ed.load(file), 4).save(tmp_path / "plan.json")
    assert run(monkeypatch, tmp_path / "plan.json", "--random", "--check") == 0


def test_the_check_is_against_the_graph_as_written(tmp_path, monkeypatch, capsys):
    """Ordering this contraction rounds 257, a partial result, to bfloat16: 256."""
    file, data = tmp_path / "chain.ein", tmp_path / "data.npz"
    file.write_text(
        "input X[i: 2, j: 2] bfloat16, Y[j, k: 2] bfloat16, W[k, l: 2] bfloat16\n"
        "Z[i,l] <- sum X[i,j] * Y[j,k] * W[k,l]\noutput Z"
    )
    y = np.array([[256, -256], [1, 0]], np.float32)
    np.savez(data, X=np.ones((2, 2), np.float32), Y=y, W=np.ones((2, 2), np.float32))
    assert run(monkeypatch, file, "-p", 1, "--data", data, "--check", "--json") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["outputs"]["Z"]["error"] == 1
    assert "differ from the reference" in shown.err


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, 2.0], [1.0, np.nan], np.inf),
        ([np.inf, np.nan], [np.inf, np.nan], 0),
        ([np.inf], [1.0], np.inf),
        ([3.0, 4.0], [3.0, 5.0], 0.2),
        ([2**62 + 1], [2**62], 1),
        ([2**63 - 1, 0], [-(2**63), 0], 2.0**64),
        ([True], [False], 1),
        ([1 + 1j], [1 + 2j], 1 / abs(1 + 2j)),
        ([], [], 0),
    ],
)
def test_no_difference_is_overlooked(found, wanted, error):
    assert largest_error(np.array(found), np.array(wanted)) == pytest.approx(error)


def test_bfloat16_goes_out_and_comes_in(tmp_path, monkeypatch):
    file, data, out = (tmp_path / name for name in ("twice.ein", "data.npz", "X.npz"))
    file.write_text("input X[i: 3] bfloat16\nZ[i] <- X[i] * 2\noutput X, Z")
    np.savez(data, X=np.array([1, 2, 3], np.float32))
    assert run(monkeypatch, file, "-p", 1, "--data", data, "-o", out) == 0
    np.save(tmp_path / "z.npy", np.load(out)["Z"])
    assert run(monkeypatch, file, "-p", 1, "--data", f"X={tmp_path / 'z.npy'}", "-o", out) == 0
    assert np.load(out)["Z"].view(ml_dtypes.bfloat16).tolist() == [4, 8, 12]


def test_outputs_are_written_without_a_copy(tmp_path):
    array = np.zeros(1 << 23)
    tracemalloc.start()
    write_whole(tmp_path / "out.npz", lambda opened: write_npz(opened, {"Z": array}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < array.nbytes / 2
    assert np.array_equal(np.load(tmp_path / "out.npz")["Z"], array)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-p", "2", "--data", "W=w.npy"], 1, "'W' is not an input of the graph"),
        (
            ["-p", "2", "--data", "X=bad.npy"],
            1,
            "bad.npy is no .npy file: it does not begin as one",
        ),
        (
            ["-p", "2", "--data", "bad.npy"],
            1,
            "bad.npy is no .npz file: it does not begin as one",
        ),
        (["-p", "2", "--data", "missing.npz"], 1, "missing.npz"),
        (["-p", "2", "--data", "/dev/zero"], 1, "/dev/zero is no regular file"),
        (["-p", "2", "--data", "X=/dev/zero"], 1, "/dev/zero is no regular file"),
        (["-p", "2", "--random", "-o", "z.npy"], 2, "into one .npz file, not z.npy"),
        (
            ["-p", "2", "--random", "-o", "z", "--trace", "./z"],
            2,
            "two things cannot both be written to z",
        ),
        (["-p", "2", "--data", "one.npy"], 1, "one.npy holds one array: say which input it is"),
        (["-p", "2", "--data", "X=two.npz"], 1, "two.npz holds arrays by name: give it alone"),
    ],
)
def test_mistakes(arguments, status, message, file, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("bad.npy").write_bytes(b"nonsense")
    np.save("one.npy", np.ones(3))
    np.savez("two.npz", X=np.ones(3), Y=np.ones(3))
    assert run(monkeypatch, file, *arguments) == status
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_pickled_objects_are_refused(file, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert run(monkeypatch, file, "-p", 2, "--data", f"X={tmp_path / 'x.npy'}") == 1
    assert "is no .npy file of numbers" in capsys.readouterr().err


def _damaged(data: bytes) -> bytes:
    """A zip file with some of its first member's data changed."""
    return data[:80] + bytes(byte ^ 0x55 for byte in data[80:120]) + data[120:]


def _flagged(data: bytes, at: int, value: int) -> bytes:
    """A zip file with a byte of its first member's headers changed: the local and the central."""
    local, central = data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02")
    found = bytearray(data)
    found[local + at] = found[central + 2 + at] = value
    return bytes(found)


DAMAGES = {
    "damaged": _damaged,
    "cut": lambda data: data[:-30],
    "encrypted": lambda data: _flagged(data, 6, 1),
    "of another version": lambda data: _flagged(data, 4, 99),
    "packed in another way": lambda data: _flagged(data, 8, 97),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("given", ["{}", "X={}"])
def test_damaged_archives_are_named(damage, given, file, tmp_path, monkeypatch, capsys):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).random((4, 6)))
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert run(monkeypatch, file, "-p", 2, "--data", given.format(path)) == 1
    assert "data.npz" in capsys.readouterr().err


def test_an_array_larger_than_any_memory_is_refused(file, tmp_path, monkeypatch, capsys):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("X.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 5)}
        np.lib.format.write_array_header_1_0(member, header)
    assert run(monkeypatch, file, "-p", 2, "--data", path) == 1
    assert "data.npz is no .npz file of numbers" in capsys.readouterr().err


def test_an_interrupt_writes_nothing(file, tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadsProgram, "run", interrupt)
    trace = tmp_path / "run.json"
    assert run(monkeypatch, file, "-p", 2, "--random", "--trace", trace) == 130
    assert not trace.exists()  # nothing had happened
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--objective", "time", "--machine", "cpu-cluster"],
        ["--objective", "bound", "--solver", "linear"],
        ["--memory", "1MB"],
        ["--pin", "Z=i:2", "--inputs", "sharded"],
    ],
)
def test_planning_is_asked_for_as_elsewhere(options, file, monkeypatch):
    asked = []
    monkeypatch.setattr(request.Request, "plan", note_request(asked))
    assert run(monkeypatch, file, "-p", 2, "--random", "--check", *options) == 0
    [found] = asked
    for name, value in zip(options[::2], options[1::2], strict=True):
        assert getattr(found, name[2:]) in (value, [value])


def note_request(asked):
    plan = request.Request.plan

    def note(self, graph, **options):
        asked.append(self)
        return plan(self, graph, **options)

    return note


def test_a_seed_is_of_the_random_inputs(file, tmp_path, monkeypatch, capsys):
    def outputs(*options):
        out = tmp_path / "out.npz"
        assert run(monkeypatch, file, "-p", 1, "--random", "-o", out, *options) == 0
        return np.load(out)["Z"]

    assert np.array_equal(outputs(), outputs("--seed", 0))
    assert np.array_equal(outputs("--seed", 1), outputs("--seed", 1))
    assert not np.array_equal(outputs("--seed", 1), outputs())
    assert run(monkeypatch, file, "-p", 1, "--data", tmp_path / "out.npz", "--seed", 1) == 2
    assert "--seed is for --random" in capsys.readouterr().err


def test_a_full_disk_costs_the_trace_and_nothing_else(file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.npz"
    arguments = [file, "-p", 1, "--random", "-o", out, "--trace", "/dev/full", "--json"]
    assert run(monkeypatch, *arguments) == 1
    shown = capsys.readouterr()
    assert np.load(out)["Z"].shape == (4, 4)
    assert json.loads(shown.out)["outputs"]["Z"]["shape"] == [4, 4]
    assert "/dev/full: the trace was not written: No space left on device" in shown.err
