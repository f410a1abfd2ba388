"""What all tests and documents share: devices for JAX, signals, long cases, a folder for documents.

JAX reads the environment when it is imported, which no test does before this.
"""

import os
import signal
from pathlib import Path
from zlib import crc32

import pytest

from cases import ALL, EVERY
from started_processes import end_started, mark_started

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "16")

collect_ignore_glob = ["docs/*.py"]  # which make the site


def pytest_configure() -> None:
    """Take Ctrl-C even where it is ignored, as in `nohup make test &`; children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes long to `make test-all`."""
    if ALL:
        return
    kept = _a_few([item for item in items if not _is_long(item)])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _is_long(item: pytest.Item) -> bool:
    """Whether a test is marked `long`, or its parameters are among those that the mark names."""
    return any(not mark.args or item.callspec.id in mark.args for mark in item.iter_markers("long"))


def _a_few(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of the cases of a test marked `one_in(n)` the n-th part, mixed but always the same ones."""
    kept: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("one_in") and not EVERY:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
        else:
            kept.add(item)
    for each in cases.values():
        [n] = each[0].get_closest_marker("one_in").args
        mixed = sorted(each, key=lambda item: crc32(item.nodeid.encode()))
        kept.update(mixed[: -(-len(each) // n)])
    return kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """End the processes that a failing test leaves, so that no other test meets them."""
    mark_started(item.nodeid)
    try:
        return (yield)
    except pytest.skip.Exception:
        raise
    except BaseException:
        end_started(item.nodeid)
        raise


@pytest.fixture(autouse=True)
def _in_a_folder(request: pytest.FixtureRequest):
    """Run documents in a folder of their own, in which they find the examples and may write."""
    if request.node.path.suffix == ".md":
        folder = request.getfixturevalue("tmp_path")
        (folder / "examples").symlink_to(Path(__file__).parent / "examples")
        request.getfixturevalue("monkeypatch").chdir(folder)
