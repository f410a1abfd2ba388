"""The source stays as small as `pyproject.toml` says; who needs more raises that, and says why."""

from __future__ import annotations

import token
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = token.OP, token.NAME, token.NUMBER, token.STRING


def code_lines(path: Path) -> int:
    """The lines of a file that hold a token other than comments and docstrings."""
    with tokenize.open(path) as file:
        tokens = [each for each in tokenize.generate_tokens(file.readline) if each.type in CODE]
    lines: set[int] = set()
    for each in tokens:
        is_docstring = each.type == token.STRING and each.line.strip().startswith(('"""', "'''"))
        if not is_docstring:
            lines.update(range(each.start[0], each.end[0] + 1))
    return len(lines)


def test_a_line_of_code_has_a_token(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text('"""What it\n\nis."""\n\n# why\nx = (\n    1,\n)\ny = """a\nb"""\n')
    assert code_lines(path) == 5


def test_the_source_keeps_its_budget() -> None:
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["eindecomp"]["budget"]
    files = [*(ROOT / "src").rglob("*.py")]
    used = {"lines": sum(map(code_lines, files)), "files": len(files)}
    assert used["lines"] <= budget["lines"], f"src has {used}, more than its budget {budget}"
    assert used["files"] <= budget["files"], f"src has {used}, more than its budget {budget}"
