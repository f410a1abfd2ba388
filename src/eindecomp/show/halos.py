"""Halos in words: what devices read around what they hold, and from how many neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from eindecomp.layout.cut import Cut
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling, box_on
from eindecomp.show.words import count_words
from eindecomp.tra.program.device_row import moves

MOST_DEVICES = 1024
"""Beyond so many, nobody looks for the one with the most neighbours."""


def halo_words(mesh: Mesh, labels: Sequence[str], held: Cut, need: Cut) -> str:
    """What devices need around what they hold, if they need little else: a halo.

    It is that of the device that needs it from the most others.
    """
    if all(span.image is None for span in need) or mesh.devices > MOST_DEVICES:
        return ""
    exchanges = (moves(mesh, Tiling(held), Tiling(need), d) for d in range(mesh.devices))
    most = max(enumerate(exchanges), key=lambda each: len({r.peer for r in each[1].receives}))
    device, peers = most[0], {each.peer for each in most[1].receives}
    around: list[str] = []
    pairs = zip(box_on(mesh, held, device), box_on(mesh, need, device), strict=True)
    for label, ((low, high), (first, end)) in zip(labels, pairs, strict=True):
        if first >= high or end <= low:
            return ""  # it is somewhere else
        counts = (low - first, "before"), (end - high, "after")
        sides = [f"{count} {side}" for count, side in counts if count > 0]
        around += [f"{' and '.join(sides)} along {label}"] if sides else []
    if not around or not peers:
        return ""
    return f"a halo of {', '.join(around)}, from {count_words(len(peers), 'neighbour')}"
