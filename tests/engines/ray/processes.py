"""The processes that a process has started, and what they are."""

from __future__ import annotations

import os
from pathlib import Path


def below(pid=None):
    """The processes below one, by default this one, with the words they were called with."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat, words = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            except OSError:  # it has just ended
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1]), words
    found, last = {}, {os.getpid() if pid is None else pid}
    while last:
        last = {child for child, (parent, _) in parents.items() if parent in last}
        found |= {child: parents[child][1] for child in last}
    return found
