"""Finding engines by name."""

from __future__ import annotations

import pytest

import eindecomp as ed
from eindecomp.engines import engine


def test_installed_packages_are_looked_through_once(monkeypatch):
    assert engine.find_engine("threads")
    monkeypatch.delattr(engine, "entry_points")
    assert engine.find_engine("threads")
    with pytest.raises(ed.InputError, match="there is no engine 'thread'; did you mean 'threads'"):
        engine.find_engine("thread")
