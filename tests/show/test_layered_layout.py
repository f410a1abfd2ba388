"""The layout of pictures: nothing overlaps, and everything lies below what it reads."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.show.layered import Connector, Item, Layered, lay_out


@st.composite
def tangles(draw: st.DrawFn) -> tuple[list[Item], list[Connector]]:
    """Random graphs without cycles, with links that have words and some that do not."""
    count = draw(st.integers(1, 14))
    sizes = st.floats(5, 200)
    items = [Item(draw(sizes), draw(sizes)) for _ in range(count)]
    pairs = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=24)) if pairs else []
    links = [Connector(a, b, draw(st.sampled_from([0.0, 40.0])), 3.0) for a, b in chosen]
    return items, links


def rectangles(items: list[Item], made: Layered) -> list[tuple[float, float, float, float]]:
    placed = zip(items, made.items, strict=True)
    return [(x - i.width / 2, y, x + i.width / 2, y + i.height) for i, (x, y) in placed]


@settings(max_examples=50)
@given(tangles())
def test_items_lie_apart_and_below_what_they_read(
    tangle: tuple[list[Item], list[Connector]],
) -> None:
    items, links = tangle
    made = lay_out(items, links)
    boxes = rectangles(items, made)
    for (a, b, c, d), (e, f, g, h) in combinations(boxes, 2):
        assert c <= e + 1e-6 or g <= a + 1e-6 or d <= f + 1e-6 or h <= b + 1e-6
    for left, top, right, bottom in boxes:
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= made.width + 1e-6
        assert bottom <= made.height + 1e-6
    for join, route in zip(links, made.routes, strict=True):
        source, target = boxes[join.source], boxes[join.target]
        assert source[3] <= target[1]
        assert source[0] <= route[0][0] <= source[2]
        assert target[0] <= route[-1][0] <= target[2]
        assert (route[0][1], route[-1][1]) == (source[3], target[1])
        assert all(upper[1] <= lower[1] for upper, lower in pairwise(route))


@settings(max_examples=30)
@given(tangles())
def test_words_have_a_place_that_no_item_covers(tangle: tuple[list[Item], list[Connector]]) -> None:
    items, links = tangle
    made = lay_out(items, links)
    boxes = rectangles(items, made)
    for join, place in zip(links, made.words, strict=True):
        assert (place is None) == (not join.words_width)
        if place is not None:
            x, y = place
            left, right = x - join.words_width / 2, x + join.words_width / 2
            for a, b, c, d in boxes:
                assert not (a < right and left < c and b < y < d)


def test_the_same_graph_is_laid_out_the_same_way() -> None:
    items = [Item(40, 20) for _ in range(6)]
    links = [Connector(a, b) for a, b in [(0, 2), (1, 2), (2, 3), (0, 4), (3, 5), (4, 5)]]
    assert lay_out(items, links) == lay_out(items, links)


def test_long_links_run_straight() -> None:
    """A link past a column of boxes bends next to its ends only."""
    items = [Item(40, 20) for _ in range(8)]
    links = [*(Connector(k, k + 1) for k in range(7)), Connector(0, 7)]
    route = lay_out(items, links).routes[-1]
    assert len({round(x, 3) for x, _ in route[1:-1]}) == 1


def test_nothing_is_an_empty_picture() -> None:
    assert lay_out([], []) == Layered(0, 0, (), (), ())
