"""The command line on the ranks of a job: one reads, one speaks, and all do the same."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest
from jobs import launch, needs_mpi, run_command

from eindecomp.cli import main, terminal
from eindecomp.cli.llama import _shared
from eindecomp.engines.engine import Ranks

PATIENT = """
import sys
from eindecomp.cli import main, terminal

terminal.PATIENCE = 600  # a rank that is not ended meanwhile hangs, however slow the machine is
sys.argv[0] = "eindecomp"
main()
"""
LAUNCHED = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK", "WORLD_SIZE")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "matmul.ein"
    path.write_text("input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    return path


@pytest.fixture
def patient(tmp_path):
    """The command that starts the command line on two ranks, with time to end the second one."""
    script = tmp_path / "patient.py"
    script.write_text(PATIENT)
    return [*launch("mpi", 2), str(script)]


@pytest.fixture
def launched(monkeypatch):
    """Sets the environment of a rank; what a rank waits for and how it ends is noted."""
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    noted = []
    monkeypatch.setattr(terminal, "sleep", lambda seconds: noted.append(("waits", seconds)))
    monkeypatch.setattr(terminal.os, "_exit", lambda status: noted.append(("ends", status)))
    monkeypatch.setattr(terminal.signal, "signal", lambda *_: None)

    def launch_as(environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return noted

    return launch_as


@pytest.mark.one_in(3)
@needs_mpi
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["none.ein", "--random"], 1, "none.ein: No such file or directory"),
        (["{file}", "--random", "-p", "3"], 1, "the plan is for 3 devices, the job has 2 ranks"),
        (["{file}"], 2, "say where inputs come from"),
    ],
)
def test_a_mistake_is_told_once(arguments, status, message, file, patient):
    words = [word.format(file=file) for word in arguments]
    job = run_command([*patient, "run", *words, "--engine", "spmd"])
    assert job.status == status
    assert job.err.count(message) == 1
    assert "made no plan" not in job.err
    assert "told to end" not in job.err


@needs_mpi
def test_there_is_a_device_for_every_rank(file):
    words = ["-m", "eindecomp", "run", str(file), "--random", "--check", "--engine", "spmd"]
    job = run_command([*launch("mpi", 3), *words])
    assert job.status == 0, job.err
    assert "on 3 workers" in job.out


@pytest.mark.long
@needs_mpi
def test_the_first_rank_reads_prompts_for_all(tmp_path):
    pytest.importorskip("transformers")
    from small_llama import make_llama

    make_llama(tmp_path / "llama")
    words = ["-m", "eindecomp", "llama", str(tmp_path / "llama"), "--ids", "--max-tokens", "5"]
    given = "1 2 3\n\n4 5 6\n"
    alone = subprocess.run(  # noqa: S603 - our own
        [sys.executable, *words], input=given, capture_output=True, text=True, check=True
    )
    job = run_command([*launch("mpi", 2), *words, "--engine", "spmd"], given=given)
    assert job.status == 0, job.err
    assert len(job.out.splitlines()) == 2
    assert job.out == alone.stdout


class Noting(Ranks):
    """The first rank of a job, which notes what it does while others wait for it."""

    def __init__(self):
        super().__init__()
        self.noted = []

    @contextmanager
    def not_stuck(self):
        self.noted.append("waits")
        yield
        self.noted.append("goes on")

    def share_bytes(self, own):
        self.noted.append(own)
        return own or b""


def test_a_rank_says_that_it_waits_for_somebody_to_type():
    ranks = Noting()

    def typed():
        assert ranks.noted == ["waits"]
        yield "hello"

    assert list(_shared(typed(), ranks)) == ["hello"]
    assert ranks.noted == ["waits", b"> hello", "goes on", "waits", b"", "goes on"]


@pytest.mark.parametrize(
    ("environment", "noted"),
    [
        ({}, []),
        ({"RANK": "1"}, []),
        ({"RANK": "0", "WORLD_SIZE": "2"}, [("ends", 1)]),
        ({"RANK": "1", "WORLD_SIZE": "2"}, [("waits", 2), ("ends", 1)]),
        ({"OMPI_COMM_WORLD_RANK": "0", "SLURM_PROCID": "1"}, [("ends", 1)]),
        ({"PMI_RANK": "3"}, [("waits", 2), ("ends", 1)]),
        ({"PMIX_RANK": "1"}, [("waits", 2), ("ends", 1)]),
        ({"SLURM_PROCID": "1"}, [("waits", 2), ("ends", 1)]),
    ],
)
def test_an_error_of_one_rank_alone_is_told(environment, noted, launched, monkeypatch, capsys):
    found = launched(environment)
    monkeypatch.setattr("sys.argv", ["eindecomp", "plan", "none.ein"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    assert found == noted
    assert capsys.readouterr().err.count("none.ein") == 1


@pytest.mark.parametrize("words", [["--none"], ["plan", "--none"], ["none"]])
def test_wrong_usage_waits_as_well(words, launched, monkeypatch, capsys):
    found = launched({"OMPI_COMM_WORLD_RANK": "1"})
    monkeypatch.setattr("sys.argv", ["eindecomp", *words])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert found == [("waits", 2), ("ends", 2)]
    assert "none" in capsys.readouterr().err
