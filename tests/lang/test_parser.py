"""The parser's tables on disk: whatever lies there, texts are read the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eindecomp.lang.text import parser

TEXT = "Z[i] <- sum X[i,j]\n"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where bytecode goes."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    return tmp_path / "bytecode"


def read() -> object:
    return parser._parser.__wrapped__().parse(TEXT, start="start")


@pytest.mark.parametrize("keep", [0, 10, 65, 100, 20_000])
def test_damaged_tables_are_made_again(place: Path, keep: int) -> None:
    expected = read()
    [tables] = place.rglob("*.tables")
    size = tables.stat().st_size
    tables.write_bytes(tables.read_bytes()[:keep])
    assert read() == expected
    assert tables.stat().st_size >= size // 2
    assert read() == expected


def test_a_place_that_cannot_be_written_does_no_harm(place: Path) -> None:
    place.write_text("not a folder")
    assert read()
