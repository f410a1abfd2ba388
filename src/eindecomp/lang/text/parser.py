"""Parsing `.ein` text with lark, and saying what is wrong with it.

The grammar is `ein.lark`. Lark's LALR parser keeps its own stack, so deep nesting costs no
recursion; texts past `MAX_TEXT` characters are refused before they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from eindecomp.errors import Source, TextError
from eindecomp.lang.text.to_syntax import Misplaced, ToSyntax

MAX_STATEMENT = 20_000
"""How many tokens one statement may have; none that people write comes near."""


def parse(source: Source, start: str) -> Any:
    """Parse a text by a start rule of the grammar."""
    try:
        return _parser().parse(source.text + "\n", start=start)
    except UnexpectedEOF:
        raise TextError("the text ends unexpectedly", source, len(source.text)) from None
    except UnexpectedToken as error:
        token: Token = error.token
        at = len(source.text) if token.type == "$END" else token.start_pos or 0
        expected = _expected(error.accepts or error.expected)
        raise TextError(f"{_describe(token)} here; expected {expected}", source, at) from None
    except UnexpectedCharacters as error:
        offset: int = error.pos_in_stream
        message = f"character {source.text[offset]!r} is unexpected here"
        raise TextError(message, source, offset) from None
    except Misplaced as error:
        raise TextError(str(error), source, error.at) from None


class _Lines:
    """Drops line ends inside brackets and parentheses, so that a statement may span lines."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = length = 0
        for token in stream:
            words = 3 + 2 * token.count(",") if token.type == "LABELS" else 1
            length = 0 if token.type == "_NL" and depth <= 0 else length + words
            if length > MAX_STATEMENT:
                message = f"a statement has more than {MAX_STATEMENT:,} words and signs"
                raise Misplaced(message, token.start_pos or 0)
            if token.type in ("LSQB", "LPAR"):
                depth += 1
            elif token.type in ("RSQB", "RPAR"):
                depth -= 1
            if token.type != "_NL" or depth <= 0:
                yield token


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("ein.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["start", "join"],
        transformer=ToSyntax(),
        postlex=_Lines(),
        propagate_positions=False,
        maybe_placeholders=True,
    )


_WORDS = {
    "NAME": "a name",
    "PREFIX": "an aggregation",
    "FIELD": "an aggregation",
    "LABELLED": "an aggregation",
    "NUMBER": "a number",
    "COMPARE": "a comparison",
    "_NL": "the end of the line",
    "$END": "the end of the text",
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'",
    "LABELS": "'['",
    "COMMA": "','", "COLON": "':'", "SEMICOLON": "';'", "EQUAL": "'='", "STAR": "'*'",
    "PLUS": "'+'", "MINUS": "'-'", "SLASH": "'/'", "FLOOR": "'//'", "PERCENT": "'%'",
    "_TIE": "'tie'", "_ARROW": "'->'", "_ASSIGN": "'<-'", "_POWER": "'**'",
}  # fmt: skip
_OPERATORS = {
    "PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "PERCENT", "_POWER", "COMPARE", "AND", "OR",
}  # fmt: skip


def _describe(token: Token) -> str:
    if token.type in ("_NL", "$END"):
        return f"{_WORDS[token.type]} comes too early"
    shown = "[" if token.type == "LABELS" else str(token)[:40]
    return f"unexpected {shown!r}"


def _expected(terminals: set[str]) -> str:
    """Name what may follow, the operators as one."""
    names = set(terminals)
    words: set[str] = set()
    if "RSQB" in names:
        # An index that is computed is read only to say how it is written.
        names -= _OPERATORS if "NAME" in names else {*_OPERATORS, "LPAR"}
    if len(names & _OPERATORS) > 3:
        names -= _OPERATORS
        words.add("an operator")
    words |= {_WORDS.get(name, f"'{name.lower()}'") for name in names}
    ordered = sorted(words, key=lambda word: (word.startswith("'"), word))
    return " or ".join(ordered)
