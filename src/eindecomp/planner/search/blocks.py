"""Chooses mesh axes for every vertex, a block of axes at a time.

All axes are one block where the tables allow it. Beyond that, a few axes are chosen at a time:
first from coarse to fine, the outer axes on a mesh of their own and each following block inside
what has been decided; then blocks are chosen again, with all others fixed, until nothing improves.
With many equal layers, those choose alike first, and then apart: sooner than apart at once.
`start_from_pieces` chooses axes for the numbers of pieces that the relaxed problem has chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from math import inf

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import bits_of
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.search.relaxation import Relaxed
from eindecomp.planner.search.search import (
    Outcome,
    Search,
    all_axes,
    allowed_vectors,
    better,
    is_enough,
    is_open,
    solve,
)
from eindecomp.planner.space.choices import (
    Assignment,
    Choices,
    Decision,
    summed_axes,
    unassigned,
    ways,
)
from eindecomp.planner.space.homes import Settled
from eindecomp.planner.space.layout_rules import alike_vertices
from eindecomp.planner.space.pieces import Levels, Vector, pieces_of
from eindecomp.planner.space.viable import FixedParts
from eindecomp.solve.clock import has_passed, planning_time


def choose_by_blocks(search: Search, sizes: Sequence[int], *, needed: bool = True) -> Outcome:
    """Choose axes block by block, in the largest blocks that elimination can handle.

    The bound is valid if all axes were one block. Once time is up, axes are chosen one at a time,
    which takes little longer; if no plan is `needed`, or memory is limited, that is the end.
    """
    is_limited = search.memory is not None
    for left, size in zip(range(len(sizes), 0, -1), sizes, strict=True):
        if has_passed(search.deadline) and not search.smallest:
            break
        with suppress(UnsolvedError):
            return _coarse_to_fine(search.hurried(1 / left) if is_limited else search, size)
    if is_limited or not needed:
        raise UnsolvedError("time is up")
    grace = budgets.BLOCK_SECONDS * max(len(search.mesh.sizes), 1)
    for pairs in (False, True):
        late = max(search.deadline, planning_time() + grace)
        with suppress(UnsolvedError):
            return _coarse_to_fine(replace(search, deadline=late), 1, pairs=pairs)
    raise UnsolvedError("time is up")


def _coarse_to_fine(search: Search, size: int, *, pairs: bool = False) -> Outcome:
    axes = all_axes(search)
    size = max(size, 1)  # one device has no axes
    blocks = [axes[a : a + size] for a in range(0, max(len(axes), 1), size)]
    outcome: Outcome | None = None
    last = 0.0
    searches = pairs or search.memory is not None  # then a block takes what time it is given
    for number, block in enumerate(blocks):
        started, left = planning_time(), len(blocks) - number
        if not search.smallest and has_passed(search.deadline - (0 if searches else last * left)):
            raise UnsolvedError("time is up")
        end = block[-1] + 1 if block else 0
        mesh = search.mesh.along(range(end))
        base = {} if outcome is None else outcome.decisions
        search.tell(f"axes {block[0] + 1} to {end}" if block else "axes")
        # What reads the least on the outer axes may leave the inner ones less choice.
        ranks = search.ranks and len(blocks) == 1
        part = replace(search.on(mesh), ranks=ranks)
        if searches:
            part = replace(part, deadline=started + (search.deadline - started) / left)
        outcome = choose_block(part, block, base, pairs=pairs)
        last = planning_time() - started
    assert outcome is not None  # noqa: S101 - there is a block
    return outcome if len(blocks) == 1 else replace(outcome, bound=0)


def improve_blocks(
    search: Search, outcome: Outcome, goal: float, size: int, *, searched: bool = False
) -> tuple[Outcome, bool]:
    """Choose blocks of axes again until nothing improves, the goal is met or time is up.

    All are of one size, neighbouring axes first, then all other groups. Those too wide for
    elimination may be `searched`.

    Also returns whether no such block improves the plan, or the goal is met, or time is up; if not,
    a block was too wide to be solved.
    """
    axes = all_axes(search)
    near = [axes[a : a + size] for a in range(len(axes) - size + 1)]
    windows = list(dict.fromkeys([*near, *combinations(axes, size)]))
    stale = turn = 0
    last = 0.0
    while stale < len(windows) and outcome.cost > goal:
        started = planning_time()
        if has_passed(search.deadline - last):
            return outcome, True
        hurried = search
        if searched:
            share = budgets.BLOCK_SHARE * (search.deadline - started)
            hurried = replace(search, deadline=started + max(share, budgets.BLOCK_SECONDS))
        window = windows[turn % len(windows)]
        try:
            other = choose_block(hurried, window, outcome.decisions, pairs=searched)
        except UnsolvedError:
            return outcome, False
        last = planning_time() - started
        search.tell("improve", min(other.cost, outcome.cost))
        stale = 0 if other.cost < outcome.cost else stale + 1
        outcome = other if other.cost < outcome.cost else outcome
        turn += 1
    return outcome, True


def block_sizes(search: Search) -> tuple[int, ...]:
    """How many axes can be chosen together, the largest number first."""
    most, size = max(search.most_labels, 2), 1
    while ways(most, size + 1, any_order=search.any_order) <= budgets.BLOCK_WAYS:
        size += 1
    return tuple(range(min(size, max(len(search.mesh.sizes), 1)), 0, -1))


def choose_block(
    search: Search,
    block: tuple[int, ...],
    base: Mapping[str, Decision],
    *,
    pairs: bool = False,
) -> Outcome:
    """Choose the axes of one block, with all other axes as decided."""

    mesh = search.mesh
    moved = bits_of(block)

    def of(vertex: Vertex, view: View) -> Choices:
        before = base.get(vertex.name)
        current = unassigned(view) if before is None else before.assignment
        rows = search.assignments(vertex, view, current, block)
        settled = None
        if before is not None:
            settled = Settled(before.places, summed_axes(view, current) & ~moved)
        if not rows:
            rows = (_any_assignment(search, vertex, view),)
            settled = Settled((), (1 << len(mesh.sizes)) - 1)
        return search.choices(vertex, view, rows, settled)

    return solve(search, of, pairs=pairs)


def any_plan(search: Search) -> Outcome:
    """A plan in no time: every vertex is cut in the first way that comes to hand."""
    mesh = search.mesh

    def of(vertex: Vertex, view: View) -> Choices:
        if vertex.name in search.rules.pinned:
            return search.every_choice(vertex, view)
        settled = Settled((), (1 << len(mesh.sizes)) - 1)
        return search.choices(vertex, view, (_any_assignment(search, vertex, view),), settled)

    return replace(solve(search, of, pairs=True), bound=0)


def _any_assignment(search: Search, vertex: Vertex, view: View) -> Assignment:
    """Any assignment into the most pieces, for a vertex to which earlier blocks left no choice."""
    mesh = search.mesh
    parts = allowed_vectors(search, vertex, view)
    if not len(parts):
        if mesh.devices < search.devices:
            return unassigned(view)  # the inner axes will cut it
        raise PlanError(f"{vertex} cannot be cut as the strategy or decomposition asks")
    left: list[int] = parts[0].tolist()
    assignment: list[list[int]] = [[] for _ in view.labels]
    for axis in sorted(range(len(mesh.sizes)), key=lambda a: -mesh.sizes[a]):
        for label, pieces in enumerate(left):
            if pieces % mesh.sizes[axis] == 0 and pieces > 1:
                assignment[label].append(axis)
                left[label] //= mesh.sizes[axis]
                break
    return tuple(tuple(sorted(axes)) for axes in assignment)


def with_equal_layers(search: Search) -> Search:
    """The same search, in which vertices of equal layers choose alike."""
    return replace(search, alike=alike_vertices(search.graph, search.rules, budgets.NEAR_STEPS))


def improve_layers(search: Search, outcome: Outcome, goal: float) -> Outcome:
    """Choose blocks of axes again: for all equal layers at once, then for those in the middle."""
    known = [
        alike_vertices(search.graph, search.rules, far)
        for far in (budgets.NEAR_STEPS, budgets.FAR_STEPS)
    ]
    too_wide = len(search.mesh.sizes) + 1
    for alike, any_order in product(known, (False, True)):
        finer = replace(search, alike=alike, any_order=any_order)
        for size in block_sizes(finer):
            if size >= too_wide:
                continue  # what was too wide already is no narrower with more to choose
            outcome, is_settled = improve_blocks(finer, outcome, goal, size)
            if is_settled:
                break
            too_wide = size
    # A search takes a share of the time, whereas elimination is done at once.
    for alike in known:
        finer = replace(search, alike=alike, any_order=True)
        outcome, _ = improve_blocks(finer, outcome, goal, 1, searched=True)
    return outcome


_UNUSED = -1


def start_from_pieces(search: Search, sizes: tuple[int, ...], relaxed: Relaxed) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to; None if they lead to none."""
    if relaxed.parts is None or relaxed.vectors is None:
        return None
    if search.memory is not None and len(relaxed.levels) > 1:
        return None
    if search.memory is not None or search.redundant:
        return _choose_by_vectors(search, relaxed.levels, relaxed.vectors, relaxed.bound)
    restricted = replace(search, restriction=FixedParts(relaxed.parts, search.mesh.devices))
    # With given numbers of pieces, an axis has few labels to choose from.
    axes = max(len(search.mesh.sizes), 1)
    every = (axes,) if search.most_ways <= budgets.LISTED_WAYS else ()
    try:
        outcome = replace(choose_by_blocks(restricted, (*every, *sizes)), bound=0)
    except PlanError:
        if not search.rules.pinned:
            raise
        return None  # pieces do not say which axes a pin asks for
    if is_open(outcome.cost, relaxed.bound) and 1 < axes <= budgets.ORDERED_AXES:
        other = _choose_by_vectors(search, relaxed.levels, relaxed.vectors, relaxed.bound)
        outcome = outcome if other is None else better(other, outcome)
    return outcome


def _choose_by_vectors(
    search: Search, levels: Levels, vectors: Mapping[str, Sequence[Vector]], bound: float
) -> Outcome | None:
    """The best plan with these pieces: the first vector of each vertex, then any of several."""
    outcome: Outcome | None = None
    axes = len(search.mesh.sizes)
    search = replace(search, any_order=axes <= budgets.ORDERED_AXES)
    first = {name: rows[:1] for name, rows in vectors.items()}
    for allowed in [first] if first == vectors else [first, vectors]:
        outcome = _choose(search, budgets.PIECES_SHARE, levels, allowed, outcome)
    several = len(levels) > 1 and budgets.ORDERED_AXES < axes <= budgets.NESTED_AXES
    if several and outcome is not None and not is_enough(search, outcome.cost, bound):
        chosen = {
            name: (pieces_of(search.mesh, levels, decision.assignment),)
            for name, decision in outcome.decisions.items()
        }
        ordered = replace(search, any_order=True)
        outcome = _choose(ordered, budgets.NESTING_SHARE, levels, chosen, outcome)
    return outcome


def _choose(
    search: Search,
    share: float,
    levels: Levels,
    vectors: Mapping[str, Sequence[Vector]],
    best: Outcome | None,
) -> Outcome | None:
    """The better of a plan and the best axes with which vertices have one of these vectors."""
    search = search.hurried(share)
    search.tell("pieces", inf if best is None else best.cost)

    def of(vertex: Vertex, view: View) -> Choices:
        rows = dict.fromkeys(
            row for vector in vectors[vertex.name] for row in assignments_with(levels, vector)
        )
        allowed = search.restricted(vertex, view, tuple(rows))
        return search.choices(vertex, view, search.nested(vertex, view, allowed, all_axes(search)))

    with suppress(UnsolvedError, PlanError):
        best = better(best, replace(solve(search, of), bound=0))
    return best


def assignments_with(levels: Levels, vector: Vector) -> Iterator[Assignment]:
    """Every assignment that cuts labels into these pieces on each level, nested in mesh order."""
    ways = [
        list(_given(axes, [pieces[level] for pieces in vector]))
        for level, axes in enumerate(levels)
    ]
    for parts in product(*ways):
        label_of = [label for part in parts for label in part]
        yield tuple(
            tuple(axis for axis, label in enumerate(label_of) if label == i)
            for i in range(len(vector))
        )


def _given(axes: tuple[int, ...], pieces: list[int]) -> Iterator[tuple[int, ...]]:
    """The ways to give each axis to a label or to none, so that labels have these pieces."""
    if not axes:
        if all(n == 1 for n in pieces):
            yield ()
        return
    first, *rest = axes
    for label in range(_UNUSED, len(pieces)):
        left = list(pieces)
        if label != _UNUSED:
            left[label], over = divmod(pieces[label], first)
            if over:
                continue
        for others in _given(tuple(rest), left):
            yield (label, *others)
