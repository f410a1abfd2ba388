"""Choosing configurations: those that fail are left out, and verdicts outlive a process."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="kernels over torch's tensors need torch")
pytest.importorskip("triton", reason="generated kernels need Triton")

from eindecomp.kernels.measured import Verdicts  # noqa: E402
from eindecomp.kernels.torch.generated import form as configs  # noqa: E402
from eindecomp.kernels.torch.generated.form import Tuning, fastest_config  # noqa: E402

WAYS = [Tuning(1, 8), Tuning(2, 8), Tuning(4, 8)]


class Card:
    """Stands for a card: a run takes as long as its configuration's rows say."""

    def __init__(self, failing: int = 0) -> None:
        self.failing, self.ran = failing, list[int]()

    def run(self, config: Tuning) -> None:
        if config.rows == self.failing:
            raise ValueError("out of resources")
        self.ran.append(config.rows)

    def seconds_of(self, run: object, device: object) -> float:
        assert callable(run)
        assert device == torch.device("cuda")
        run()
        return float(self.ran[-1])


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know no more than what is kept on disk, as another process does."""
    monkeypatch.setattr(configs, "_VERDICTS", Verdicts("joins", lambda: "a card"))


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Card:
    found = Card()
    monkeypatch.setattr(configs, "seconds_of", found.seconds_of)
    forget(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return found


def test_the_fastest_that_runs(card: Card) -> None:
    card.failing = 1
    assert fastest_config("failing", WAYS, card.run) == WAYS[1]


def test_a_verdict_is_kept(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fastest_config("join", WAYS[::-1], card.run) == WAYS[0]
    measured = len(card.ran)
    forget(monkeypatch)
    assert fastest_config("join", WAYS, card.run) == WAYS[0]
    assert len(card.ran) == measured
    assert fastest_config("another", WAYS[1:], card.run) == WAYS[1]
    assert len(card.ran) > measured


def test_nothing_is_measured_while_a_graph_is_captured(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert fastest_config("captured", WAYS[1:], card.run) == WAYS[1]
    assert card.ran == []
