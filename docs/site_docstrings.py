"""Shows doctests that stand by themselves in a docstring as sessions, not as quotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from griffe import Object

SESSION = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.M)


class Sessions(griffe.Extension):
    """An `Examples:` section is known to griffe; this is for all other doctests."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put a fence around each."""
        if obj.docstring is not None:
            obj.docstring.value = SESSION.sub(
                lambda session: f"```pycon\n{session[0]}\n```", obj.docstring.value
            )
