"""Text to tokens and back, by the `tokenizers` package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError, extra, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "tokenizer.json"


class Tokenizer:
    """A folder's `tokenizer.json`."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / NAME
        tokenizers = extra("tokenizers")
        if not path.is_file():
            raise InputError(f"{path} is missing")
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing more special
            raise InputError(f"{path} is no tokenizer: {shorten(str(error))}") from None

    @property
    def size(self) -> int:
        """The size of the vocabulary."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that mark its beginning."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._tokenizer.decode(list(ids))

    def stream(self, prompt: Sequence[int]) -> TextStream:
        """Turns the tokens after a prompt into text, one by one."""
        return TextStream(self, prompt)


_UNFINISHED = "\ufffd"


class TextStream:
    """Streamed text: a character made of several tokens comes with the last of them.

    A token's text depends on the tokens before it, so some of those are decoded again, and only the
    text that is new is passed on.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt)[-_CONTEXT:]
        self._known = self._certain()

    def add(self, token: int) -> str:
        """The text that is certain with this token; it may be empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_UNFINISHED) or not text.startswith(self._known):
            return ""
        return self._give(text)

    def end(self) -> str:
        """The remaining text, incomplete characters included."""
        text = self._tokenizer.decode(self._ids)
        return self._give(text)

    def _give(self, text: str) -> str:
        piece = text[len(self._known) :]
        self._ids = self._ids[-_CONTEXT:]
        self._known = self._certain()
        return piece

    def _certain(self) -> str:
        """The text so far, without an incomplete last character."""
        return self._tokenizer.decode(self._ids).rstrip(_UNFINISHED)


_CONTEXT = 8
