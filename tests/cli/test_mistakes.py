"""Deliberate mistakes: each is answered in words, with the status that `--help` tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app

PRODUCT = "input X[i: 8, j: 9], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"
INTS = "input N[i: 4] int32\nM[i] <- N[i] * 2\noutput M\n"
COMMAND = [sys.executable, "-m", "eindecomp"]


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def retyped(data: bytes) -> bytes:
    return data.replace(b'"devices"', b'"device"').replace(b'"cost": ', b'"cost": "much", "old": ')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with something wrong in each file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EINDECOMP_DEBUG", raising=False)
    ed.plan(ed.parse(PRODUCT), 2).save("plan.json")
    plan = Path("plan.json").read_bytes()
    for name, content in {
        "product.ein": PRODUCT.encode(),
        "ints.ein": INTS.encode(),
        "label.ein": PRODUCT.replace("Z[i,k]", "Z[i,m]").encode(),
        "shape.ein": PRODUCT.replace("Y[j, k: 8]", "Y[j: 7, k: 8]").encode(),
        "unknown.ein": PRODUCT.replace("X[i,j] *", "W[i,j] *").encode(),
        "no_output.ein": PRODUCT.replace("output Z", "").encode(),
        "empty.ein": b"",
        "blank.ein": b" \n\n",
        "binary.ein": bytes(range(256)),
        "zeros.ein": bytes(64),
        "cut.json": truncated(plan),
        "types.json": retyped(plan),
        "list.json": b"[1, 2]",
        "open_list.json": b"[",
        "other.json": b'{"format": "onnx"}',
        "packed.json": b"\x1f\x8b\x08" + bytes(20),
    }.items():
        Path(name).write_bytes(content)
    good = {"X": np.ones((8, 9), np.float32), "Y": np.ones((9, 8), np.float32)}
    np.savez("good.npz", **good)
    np.savez("shape.npz", **good | {"X": np.ones((8, 8), np.float32)})
    np.savez("missing.npz", X=good["X"])
    np.savez("more.npz", **good, W=good["X"])
    np.savez("nan.npz", **good | {"X": np.full((8, 9), np.nan, np.float32)})
    np.savez("nan_ints.npz", N=np.full(4, np.nan, np.float32))
    Path("folder").mkdir()
    return tmp_path


MISTAKES = {
    "a wrong label": ("plan label.ein", 1, "label.ein:2:"),
    "a wrong shape": ("plan shape.ein", 1, "label 'j' has size 9 in X[i,j] but 7"),
    "an unknown tensor": ("plan unknown.ein", 1, "W"),
    "a graph without an output": ("plan no_output.ein -p 2", 1, "declares no output"),
    "a missing file": ("plan nowhere.ein", 1, "nowhere.ein: No such file or directory"),
    "a folder for a file": ("plan folder", 1, "folder: Is a directory"),
    "an empty file": ("plan empty.ein", 1, "empty.ein is empty"),
    "a blank file": ("explain blank.ein", 1, "blank.ein is empty"),
    "a binary file": ("plan binary.ein", 1, "binary.ein is not UTF-8 text"),
    "a file of zeros": ("plan zeros.ein", 1, "character '\\x00' is unexpected"),
    "no devices": ("plan product.ein -p 0", 2, "greater than or equal to 1"),
    "devices below none": ("plan product.ein -p -3", 2, "greater than or equal to 1"),
    "too many devices": ("plan product.ein -p 99999999999", 1, "at most 1048576 devices"),
    "devices in words": ("plan product.ein -p many", 2, "valid integer"),
    "an unknown engine": ("run product.ein --random --engine thread", 1, "mean 'threads'?"),
    "an unknown option": (
        "run product.ein --random --option worker=1", 1, "did you mean 'workers'?",
    ),
    "an unknown objective": ("plan product.ein --objective speed", 2, "'bytes', 'bound'"),
    "an unknown machine": ("simulate product.ein --machine gpu-serve", 1, "gpu-server"),
    "an unknown tensor to draw": ("draw product.ein --tiles Q", 1, "no tensor 'Q'"),
    "a picture without a place": ("draw product.ein", 2, "-o plan.svg"),
    "a picture of no known kind": ("draw product.ein -o plan.jpg", 1, "plan.jpg"),
    "a report without a place": ("report product.ein", 2, "Missing option '-o'"),
    "a truncated plan": ("explain cut.json", 1, "cut.json: not JSON"),
    "a plan of wrong types": ("explain types.json", 1, "types.json: "),
    "a list for a plan": ("explain list.json", 1, "list.json: not a plan"),
    "a list for a graph": ("plan list.json", 1, "list.json: not a plan"),
    "a list that is not closed": ("explain open_list.json", 1, "open_list.json: not JSON"),
    "another JSON file": ("explain other.json", 1, "other.json: format: must be"),
    "a packed plan": ("explain packed.json", 1, "is not UTF-8 text"),
    "options for a plan": ("explain plan.json -p 4", 2, "options are for graphs"),
    "a plan to be planned": ("plan plan.json", 1, "is a plan already"),
    "a graph to be exported": ("export product.ein --to jax", 1, "plan it first"),
    "arrays of a wrong shape": (
        "run product.ein -p 2 --data shape.npz", 1, "has shape (8, 9), got (8, 8)",
    ),
    "a missing array": ("run product.ein -p 2 --data missing.npz", 1, "missing inputs: Y"),
    "an array too many": ("run product.ein -p 2 --data more.npz", 1, "W"),
    "NaN for whole numbers": ("run ints.ein -p 2 --data nan_ints.npz", 1, "lose information"),
    "no arrays": ("run product.ein", 2, "--random, or --data data.npz"),
    "arrays as layouts": ("run product.ein --inputs good.npz", 2, "not one of 'free', 'sharded'"),
    "arrays from standard input": ("run - --data -", 1, "--data takes no standard input"),
    "standard input twice": ("plan - -", 2, "unexpected extra argument"),
    "a place that cannot be": ("plan product.ein -o nowhere/plan.json", 1, "nowhere/plan.json: No"),
    "a folder as output": ("plan product.ein -o folder", 1, "folder: Is a directory"),
    "a plan over its graph": ("plan product.ein -o product.ein", 2, "product.ein is read"),
    "outputs over the arrays": (
        "run product.ein -p 2 --data good.npz -o good.npz", 2, "good.npz is read",
    ),
    "a misspelt strategy": ("plan product.ein -p 2 --strategy megatorn", 1, "'megatron'"),
    "arrays from two places": ("run product.ein --random --data good.npz", 2, "not from both"),
    "standard output as a file": ("plan product.ein -o -", 2, "name a file"),
    "the same place twice": (
        "run product.ein --random --trace a.npz -o a.npz", 2, "written to a.npz",
    ),
    "wrong text on standard input": ("solve -", 1, "standard input: not JSON"),
    "no file at all": ("plan -p 8", 2, "Missing argument"),
    "a problem that is not packed": ("solve packed.json", 1, "cannot be inflated"),
    "a missing problem": ("solve nowhere.json", 1, "nowhere.json"),
    "a time in words": ("solve - --time soon", 2, "Invalid value"),
    "a solution without a place": ("solve packed.json -o nowhere/x", 1, "nowhere/x: No such file"),
    "labels of no tensor": ("plan - -p 8 --strategy q", 1, "has any label"),
    "labels of no tensor to compare": ("compare - -p 4 --with q", 1, "no tensor has any label"),
    "a degree that does not divide": ("plan - -p 8 --strategy i:3", 1, "divide 8 devices"),
    "a kind given twice": ("compare - --with i=j,i=k", 2, "'i' is given twice"),
    "memory in words": ("plan - -p 8 --memory big", 1, "number of bytes"),
    "too little memory": ("plan - -p 8 --memory 8B", 1, "found no plan that fits into"),
    "time without a machine": (
        "plan - -p 8 --objective time", 1,
        "objective 'time' needs a machine (machine=, --machine): an ed.Machine, a .json file",
    ),
    "another mesh": ("plan - -p 8 --mesh gpu=4", 1, "has 4 devices, not 8"),
    "a plus in an axis": ("plan - --mesh a+b=2", 1, "a mesh axis has a name without +"),
    "an axis without a size": ("plan - --mesh gpu", 2, "--mesh is such as"),
    "an axis given twice": ("plan - --mesh gpu=2,gpu=2", 2, "'gpu' is given twice"),
    "an enormous axis": (f"plan - --mesh gpu={'9' * 5000}", 2, "--mesh is such as"),
    "less work than the least": ("plan - -p4 --work 0.5", 2, "--work is a number"),
    "work in words": ("plan - -p4 --work most", 2, "or usual, not 'most'"),
    "work that is no number": ("plan - -p4 --work nan", 2, "or usual, not 'nan'"),
    "a tie of one name": ("plan - -p4 --tie W", 2, "--tie is such as W=new_W"),
    "a tie of no input": ("plan - -p4 --tie W=Z", 1, "tie: the graph has no input"),
    "ties and none": ("plan - --tie X=Z --no-ties", 2, "does not go with --tie"),
    "a pin of nothing": ("plan - -p4 --pin =i:2", 2, "--pin is such as X=i:2,j:gpu"),
    "a pin without pieces": ("plan - -p4 --pin Z=i", 2, "--pin is such as X=i:2,j:gpu, not 'i'"),
    "a pin without an axis": ("plan - -p4 --pin Z=i:a+", 2, "i:node+gpu, not 'a+'"),
    "a pin without a label": ("plan - -p4 --pin Z=:2", 2, "--pin is such as X=i:2,j:gpu"),
    "a label pinned twice": ("plan - -p4 --pin Z=i:2,i:2", 2, "'i' is given twice"),
    "a tensor pinned twice": ("plan - -p4 --pin=Z --pin=Z", 2, "'Z' is given twice"),
    "a pin of no tensor": ("plan - -p4 --pin=Q=i:2", 1, "has no tensor 'Q'"),
    "a pin of no label": ("plan - -p4 --pin=Z=q:2", 1, "pin: Z[i,k] has no label 'q'"),
    "too many pieces": ("plan - -p4 --pin=Z=i:16", 1, "Z[i,k] cannot be cut 16 ways"),
    "no pieces": ("plan - -p4 --pin=Z=i:0", 1, "cut 0 ways along 'i' of 8"),
    "a pin of no axis": (
        "compare - -p4 --pin=Z=i:gpu", 1, "no mesh axis 'gpu' to cut Z[i,k] along 'i'",
    ),
    "an unknown command": ("pln product.ein", 2, "No such command"),
    "an option of another command": ("explain plan.json --random", 2, "No such option"),
}  # fmt: skip


def invoke(words: str, given: str = PRODUCT):
    return CliRunner().invoke(app, words.split(), input=given)


def said(text: str) -> str:
    """A message as it reads, without the frame and line breaks of usage errors."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_told_on_standard_error(mistake, folder):
    words, status, message = MISTAKES[mistake]
    before = {path.name for path in folder.iterdir()}
    found = invoke(words)
    assert (found.exit_code, found.stdout) == (status, "")
    assert message in said(found.stderr)
    assert "Traceback" not in found.stderr
    assert (status == 1) == found.stderr.startswith("eindecomp: ")
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ed.load("label.ein"), "label.ein:2:"),
        (lambda: ed.load("shape.ein"), "label 'j' has size 9 in X[i,j] but 7"),
        (lambda: ed.load("nowhere.ein"), "nowhere.ein"),
        (lambda: ed.load("folder"), "folder"),
        (lambda: ed.load("binary.ein"), "binary.ein"),
        (lambda: ed.plan(ed.load("product.ein"), 0), "devices"),
        (lambda: ed.plan(ed.load("product.ein"), 10**12), "at most 1048576 devices"),
        (lambda: ed.plan(ed.load("empty.ein"), 2), "output"),
        (lambda: ed.Plan.load("cut.json"), "not JSON"),
        (lambda: ed.Plan.load("types.json"), "types.json"),
        (lambda: ed.Plan.load("list.json"), "not a plan"),
        (lambda: ed.Plan.load("product.ein"), "not JSON"),
        (lambda: run_product(engine="thread"), "did you mean 'threads'?"),
        (lambda: run_product(X=np.ones((8, 8))), "has shape (8, 9), got (8, 8)"),
        (lambda: ed.plan(ed.load("product.ein"), 2).save("nowhere/plan.json"), "nowhere/plan.json"),
    ],
)
def test_python_says_the_same(make, message, folder):
    with pytest.raises((ed.EinDecompError, OSError)) as told:
        make()
    assert message in str(told.value)


def run_product(engine="threads", **arrays):
    given = dict(np.load("good.npz")) | arrays
    return ed.run(ed.plan(ed.load("product.ein"), 2), given, engine)


@pytest.mark.parametrize("devices", [7, 11, 64])
def test_awkward_numbers_of_devices_work(devices, folder):
    found = invoke(f"run product.ein -p {devices} --random --check")
    assert found.exit_code == 0, found.output


def test_nan_is_no_error_but_is_told(folder):
    found = invoke("run product.ein -p 2 --data nan.npz --check")
    assert found.exit_code == 0
    assert found.stderr == "Z: 64 of 64 values are NaN, not numbers\n"
    assert "0.0e+00" in found.stdout  # as the reference has it
    assert '"nan":64' in invoke("run product.ein -p 2 --data nan.npz --json").stdout
    assert "nan" not in invoke("run product.ein -p 2 --data good.npz --json").stdout


# Bugs, and tracebacks


@pytest.fixture
def broken(folder, monkeypatch):
    """A planner with a bug."""

    def fail(*_args, **_more):
        raise KeyError("nobody\nexpected this")

    monkeypatch.setattr("eindecomp.cli.request.make_plan", fail)


def test_a_bug_has_a_status_of_its_own_and_says_what_to_do(broken):
    found = invoke("plan product.ein")
    assert found.exit_code == 70
    assert found.stderr.startswith("eindecomp: internal error: KeyError: ")
    assert "eindecomp --debug" in found.stderr
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) == 2


def test_debug_shows_where_a_bug_is(broken):
    found = invoke("--debug plan product.ein")
    assert found.exit_code == 70
    assert "Traceback" in found.stderr
    assert 'raise KeyError("nobody' in found.stderr
    assert "--debug" not in found.stderr.splitlines()[-1]


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_where_a_mistake_was_found(how, folder, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("EINDECOMP_DEBUG", "1")
    found = invoke(f"{'--debug ' if how == 'option' else ''}plan nowhere.ein")
    assert found.exit_code == 1
    lines = found.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "eindecomp: nowhere.ein: No such file or directory"


# Whatever ends a command early


def test_a_reader_that_goes_away_is_no_error(folder):
    for words in (["explain", "plan.json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(  # noqa: S603
            [*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_is_told(folder):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603
            [*COMMAND, "explain", "plan.json"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"eindecomp: No space left on device\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_refused_before_the_work(folder):
    Path("folder").chmod(0o500)
    found = invoke("plan nowhere.ein -o folder/plan.json")
    assert found.stderr == "eindecomp: folder/plan.json: Permission denied\n"


@pytest.mark.parametrize(
    "command", ["compare {} -p 2", "run {} --random -p 2 -o out.npz", "solve {} -o out.json"]
)
def test_an_interrupt_ends_at_once_and_leaves_nothing(command, folder):
    os.mkfifo("slow.ein")
    before = set(folder.iterdir())
    words = command.format("slow.ein").split()
    process = subprocess.Popen(  # noqa: S603
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer = None
    while writer is None and process.poll() is None:
        with suppress(OSError):  # until the command reads
            writer = os.open("slow.ein", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert writer is not None
    os.close(writer)
    assert (process.returncode, printed) == (130, b"")
    assert told == b"eindecomp: interrupted\n"
    assert set(folder.iterdir()) == before


def test_an_interrupt_anywhere_else_is_one_line(folder, monkeypatch):
    def interrupt(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr("eindecomp.cli.look.write_whole", interrupt)
    found = invoke("plan product.ein -p 2 -o out.json")
    assert (found.exit_code, found.stderr) == (130, "eindecomp: interrupted\n")
    assert not Path("out.json").exists()
