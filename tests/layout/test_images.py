"""What devices reach through windows, against the elements counted one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.layout.cut import image_of, interval, is_plain, largest_side, span_of, used_axes
from eindecomp.layout.mesh import PIECES, Mesh, piece_ends
from eindecomp.layout.overlaps import lacking, moved, overlaps, totals, volumes
from eindecomp.layout.tiling import box_on
from eindecomp.layout.view import Dim, Image, least_units, reached

MANY = settings(max_examples=25 * settings.default.max_examples)
LABELS = "wrs"


@st.composite
def images(draw) -> Image:
    count = draw(st.integers(1, 3))
    times = st.integers(-3, 3).filter(bool)
    terms = tuple((LABELS[k], draw(times), draw(st.integers(1, 7))) for k in range(count))
    clamps = draw(st.booleans())
    divisor = 1 if clamps else draw(st.integers(1, 3))
    return Image(terms, draw(st.integers(-5, 9)), divisor, draw(st.integers(1, 12)), clamps)


def elements(image: Image, ranges: dict[str, tuple[int, int]]) -> set[int]:
    """All elements from the first place to the last one."""
    every = product(*(range(*ranges[label]) for label, _, _ in image.terms))
    times = [n for _, n, _ in image.terms]
    sums = {image.offset + sum(map(int.__mul__, times, at)) for at in every}
    if image.clamps:
        sums = {min(max(at, 0), image.size - 1) for at in sums}
    whole = range(image.size)
    return {x for x in whole if sums and min(sums) <= x * image.divisor <= max(sums)}


@MANY
@given(image=images(), data=st.data())
def test_what_is_reached(image, data):
    ranges = {}
    for label, _, size in image.terms:
        ends = sorted(data.draw(st.tuples(*[st.integers(0, size)] * 2)))
        ranges[label] = tuple(ends)
    assert set(range(*reached(image, ranges))) == elements(image, ranges)


@st.composite
def reads(draw):
    """A mesh, an image, and the axes that cut each of its labels."""
    sizes = draw(st.sampled_from([(2,), (3,), (2, 2), (2, 3), (4, 2), (2, 2, 2)]))
    rule = draw(st.sampled_from(PIECES))
    mesh = Mesh(tuple(f"a{k}" for k in range(len(sizes))), sizes, rule)
    image = draw(images())
    order = draw(st.permutations(range(len(sizes))))
    owners = [draw(st.integers(-1, len(image.terms) - 1)) for _ in sizes]
    axes = {
        label: tuple(a for a in order if owners[a] == k)
        for k, (label, _, _) in enumerate(image.terms)
    }
    return mesh, image, axes


def has(mesh: Mesh, image: Image, axes: dict[str, tuple[int, ...]]) -> list[set[int]]:
    """What each device reaches."""
    found: list[set[int]] = []
    for at in product(*map(range, mesh.sizes)):
        ranges: dict[str, tuple[int, int]] = {}
        for label, _, size in image.terms:
            index = 0
            for axis in axes[label]:
                index = index * mesh.sizes[axis] + at[axis]
            sizes = [mesh.sizes[axis] for axis in axes[label]]
            ranges[label] = piece_ends(mesh.pieces, size, sizes, index)
        found.append(elements(image, ranges))
    return found


def dim_of(image: Image) -> Dim:
    low, high = reached(image, {label: (0, size) for label, _, size in image.terms})
    return Dim(None, low, high, image=image)


@MANY
@given(reads())
def test_spans_of_windows_are_counted_element_by_element(read):
    mesh, image, axes = read
    dim = dim_of(image)
    span, wanted = image_of(dim, image, axes.__getitem__), has(mesh, image, axes)
    low, high = interval(mesh, span)
    assert [set(range(*ends)) for ends in zip(low, high, strict=True)] == wanted
    for device, own in enumerate(wanted):
        [(first, last)] = box_on(mesh, (span,), device)
        assert set(range(first, last)) == own
    assert volumes(mesh, (span,)).tolist() == [len(own) for own in wanted]
    assert totals(mesh, [(span,)]).tolist() == [sum(map(len, wanted))]
    assert largest_side(mesh, span) == max(map(len, wanted))
    cutting = {axis for own in axes.values() for axis in own}
    assert used_axes((span,)) == sum(1 << axis for axis in cutting)
    assert is_plain((span,)) == (not cutting)


@MANY
@given(read=reads(), data=st.data())
def test_overlaps_with_what_is_held(read, data):
    mesh, image, axes = read
    order = data.draw(st.permutations(range(len(mesh.sizes))))
    home = tuple(order[: data.draw(st.integers(0, len(order)))])
    held, needed = (
        span_of(Dim(None, 0, image.size), home),
        image_of(dim_of(image), image, axes.__getitem__),
    )
    ends = zip(*interval(mesh, held), strict=True)
    pairs = list(zip([set(range(*own)) for own in ends], has(mesh, image, axes), strict=True))
    both = sum(len(own & want) for own, want in pairs)
    lack = [len(want - own) for own, want in pairs]
    assert overlaps(mesh, [(held,)], [(needed,)]).tolist() == [[both]]
    assert moved(mesh, [(held,)], [(needed,)]).tolist() == [[sum(lack)]]
    assert lacking(mesh, (held,), (needed,)).tolist() == lack


@MANY
@given(image=images(), data=st.data())
def test_pieces_reach_at_least_so_many_elements(image, data):
    """However the other labels are cut: what relaxed prices count on."""
    dim = dim_of(image)
    main, *others = sorted(image.terms, key=lambda term: -abs(term[1]) * term[2])
    parts = data.draw(st.integers(1, main[2]))
    ends = {label: data.draw(st.integers(0, size - 1)) for label, _, size in others}
    total = 0
    for k in range(parts):
        ranges = {label: (at, at + 1) for label, at in ends.items()}
        ranges[main[0]] = piece_ends("balanced", main[2], [parts], k)
        total += len(elements(image, ranges))
    assert least_units(dim, parts) <= total


def test_halos_by_hand():
    """Four devices in a row, 16 elements, one to either side."""
    mesh = Mesh(("a",), (4,))
    image = Image((("w", 1, 16), ("r", 1, 3)), -1, 1, 16)
    span = image_of(dim_of(image), image, {"w": (0,), "r": ()}.__getitem__)
    assert np.array(interval(mesh, span)).T.tolist() == [[0, 5], [3, 9], [7, 13], [11, 16]]
    home = span_of(Dim(None, 0, 16), (0,))
    assert lacking(mesh, (home,), (span,)).tolist() == [1, 2, 2, 1]
