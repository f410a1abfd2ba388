"""Run one block of a page after those before it: `python run_doc_block.py docs/torch.md 2`.

Fails if what the block shows is not what it gives; what those before it show is not looked at.
"""

from __future__ import annotations

import doctest
import shlex
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from test_doc_blocks import COMMAND, ROOT, Block, blocks_of

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_block(block: Block, names: dict[str, object], page: str) -> int:
    """How many of a block's examples fail, in a namespace that it adds to."""
    from eindecomp.cli.root import app

    for command in COMMAND.findall(block.text):
        app(shlex.split(command, comments=True), standalone_mode=False)
    if not block.is_doctest:
        if block.language == "python":
            exec(compile(block.text, page, "exec"), names)  # noqa: S102 - it is ours
        return 0
    test = doctest.DocTestParser().get_doctest(block.text, names, page, page, 0)
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, clear_globs=False)
    names |= test.globs
    return failed


def main(page: str, number: str) -> None:
    """Run the blocks of a page up to a number; the process fails if the last one does."""
    names: dict[str, object] = {"__name__": "page"}
    *before, own = [b for b in blocks_of(ROOT / page) if b.not_run is None][: int(number) + 1]
    for block in before:
        run_block(block, names, page)
    sys.exit(run_block(own, names, page))


if __name__ == "__main__":
    main(*sys.argv[1:])
