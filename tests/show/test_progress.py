"""Progress: nothing of it where nobody waits, all of it where somebody does."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib.util import find_spec
from math import inf

import pytest

from eindecomp.engines.result import KernelCompiled, RunStarted, TaskFinished
from eindecomp.show import progress
from eindecomp.show.progress import counting, showing, solver_line, solving
from eindecomp.solve.clock import tell_compiling
from eindecomp.solve.run import Progress

SHORT = """
import sys
import numpy as np
import eindecomp as ed

plan = ed.plan(ed.parse("input X[i: 8]\\nZ[i] <- X[i] * 2\\noutput Z"), 2, progress=True)
ed.run(plan, {"X": np.ones(8, np.float32)}, progress=True)
print(any(name.startswith("rich") for name in sys.modules))
"""

# Every look is one too many for work this short, so the first one shows it.
IMPATIENT = """
from threading import Event
import eindecomp as ed
from eindecomp.show import progress

progress._PATIENCE = progress._PAUSE = 0.001
graph = ed.parse("input X[i: 8, j: 8], Y[j, k: 8]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
looked = Event()
display = progress._display

class Seen:
    def __init__(self):
        self.own = display()
    def show(self, words, *standing):
        self.own.show(words, *standing)
        looked.set()
    def close(self):
        self.own.close()

progress._display = Seen
with progress.solving(None) as follow:
    assert follow is not None, "nobody seems to watch"
    assert looked.wait(60)
inputs = {v.name: [[1.0] * 8] * 8 for v in graph.inputs}
result = ed.run(ed.plan(graph, 2, progress=False), inputs)
"""


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_PAUSE", -1.0)


def test_short_work_shows_nothing():
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", SHORT], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_nobody_watches_a_pipe():
    for follow in (showing(None), solving(None)):
        with follow as listener:
            assert listener is None


def test_a_long_run_shows_how_many_tasks_are_done(impatient, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress.progress_console.cache_clear()
    with showing(True) as follow:
        follow(RunStarted(4))
        follow(KernelCompiled("Z[i] <- X[i] * 2", 0, 0, 0.0, 0.5))
        for _ in range(3):
            follow(TaskFinished("Z", "compute", 0, 0, 0.0, 0.0))
    progress.progress_console.cache_clear()
    shown = capsys.readouterr().err
    assert "75%" in shown
    assert "kernels compiled: 1" in shown


def test_two_at_once_share_a_terminal(impatient, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress.progress_console.cache_clear()
    with counting(True, 4) as outer, counting(True, 2) as inner:
        outer("training [red]", 1)
        inner("planning", 1)
        outer("training [red]", 3)
    progress.progress_console.cache_clear()
    assert "training [red]" in capsys.readouterr().err


def test_a_display_that_fails_does_not_end_the_work(impatient, monkeypatch):
    def fails():
        raise OSError("no terminal any more")

    monkeypatch.setattr(progress, "_display", fails)
    with counting(True, 4) as tell:
        tell("training", 1)
        tell("training", 2)


def test_whoever_listens_to_the_solver_is_told_and_needs_no_line(monkeypatch):
    monkeypatch.setattr(progress, "is_wanted", lambda wanted: wanted is not False)
    for wanted in (None, True):
        heard = []
        with solving(wanted, heard.append) as follow:
            follow(Progress(0.0, "search", 2, 1))
            for active in (True, True, False, False):
                tell_compiling(active)
        assert [event.stage for event in heard] == ["search", "compile"]


@pytest.mark.parametrize(
    ("cost", "bound", "shown"),
    [
        (inf, -inf, "cost none yet  bound none yet"),
        (inf, 12, "cost none yet  bound 12"),
        (1234567, -1234, "cost 1,234,567  bound -1,234"),
        (1234.5, 0.1 + 0.2, "cost 1,234.5  bound 0.3"),
        (1.5e12, 1e10, "cost 1,500,000,000,000  bound 10,000,000,000"),
    ],
)
def test_the_solver_stands_in_one_readable_line(cost, bound, shown):
    line = solver_line(Progress(1234.56, "search", cost, bound))
    assert line == f"1,234.6 s  search     {shown}"


def test_a_terminal_shows_planning_and_running_and_is_left_clean():
    own, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", IMPATIENT], stderr=its, stdout=its, env=environment
    )
    os.close(its)
    shown = _all_of(own)
    assert done.wait() == 0, shown
    assert "cost none yet" in shown
    assert "running" in shown
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.rpartition("\x1b[2K")[2])
    assert last.strip() == ""


def _all_of(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # how a terminal says that nobody writes to it any more
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)


class Cell:
    """What IPython is asked for when a kernel runs a cell."""

    kernel = object()


@pytest.fixture
def notebook(monkeypatch):
    """A notebook's displays, as they are sent to it, without IPython."""
    sent = []

    class Handle:
        def update(self, data, raw):
            assert raw
            sent.append(data)

    def display(data, raw, display_id):
        assert raw
        assert display_id
        sent.append(data)
        return Handle()

    ipython = type(sys)("IPython")
    ipython.get_ipython = Cell
    ipython.display = type(sys)("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return sent


def test_a_notebook_shows_a_bar_and_is_left_clean(impatient, notebook, capsys):
    with counting(None, 4) as tell:
        tell("<training>", 1)
    [_, bar, cleared] = notebook
    assert bar["text/plain"] == "<training> 1/4"
    assert bar["text/html"] == '<progress value="1" max="4"></progress> &lt;training&gt; 1/4'
    assert cleared == {"text/plain": "", "text/html": ""}
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(
    not (find_spec("ipykernel") and find_spec("nbclient")), reason="ipykernel is not installed"
)
def test_a_real_kernel_shows_planning_and_running():
    import nbformat
    from nbclient import NotebookClient

    class Client(NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] == "update_display_data":
                seen.append(msg["content"]["data"]["text/plain"])
            return super().process_message(msg, cell, cell_index)

    seen = []
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(IMPATIENT)])
    Client(book, timeout=120).execute()
    assert any("cost none yet" in text for text in seen)
    assert any(re.fullmatch(r"running.* \d+/\d+", text) for text in seen)
    assert [output["data"]["text/plain"] for output in book.cells[0].outputs] == ["", ""]
