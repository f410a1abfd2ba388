"""Labels that were probably mistyped: they would silently mean a sum and a broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.infer import show
from eindecomp.graph.lone_labels import warn_of_lone_labels
from eindecomp.lang.text import syntax as s

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.graph.ops import Op
    from eindecomp.graph.text.scope import Scope
    from eindecomp.lang.einsum import Labels


def refuse_mistyped(
    scope: Scope,
    target: s.Ref,
    refs: Mapping[tuple[str, Labels], s.Ref],
    aggregated: Collection[str],
) -> None:
    """Refuse `Z[i,k] <- sum X[i,j] * Y[j,q]` of `Y[j,k]`, where q is not declared.

    It would sum over q and give every k the same; who wants that writes `Z[i, k: 50]`.
    """
    read = {label for _, own in refs for label in own}
    unsized = {item.name for item in target.items if isinstance(item, s.Label) and not item.size}
    missing = set[str]() if scope.active else unsized - read
    for (name, own), ref in refs.items():
        made = scope.graph[name].labels
        for label, was in zip(own, made, strict=True):
            if was in missing and label in aggregated and label not in scope.sizes:
                wanted = tuple(was if each == label else each for each in own)
                raise scope.error(
                    f"label {label!r} is not declared, and no input here has {was!r}: write "
                    f"{show(name, wanted)}, or '{was}: SIZE' in {target.name} to repeat the result "
                    f"for every {was}",
                    ref.at,
                )


def warn_of_misspelt(
    scope: Scope, op: Op, sizes: Mapping[str, int], refs: Mapping[tuple[str, Labels], s.Ref]
) -> None:
    """Warn of `Z[i,k] <- sum X[i,jj] * Y[j,k]`, unless a macro says so."""
    if not scope.active:
        places = {label: ref.at for (_, own), ref in refs.items() for label in own}
        warn_of_lone_labels(op, sizes, lambda told, at: str(scope.error(told, places[at])))
