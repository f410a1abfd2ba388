"""What `explain` says: the right numbers, all of them, in readable words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.layout.cut import Span
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.cost import decided_cost, paper_cost
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.make import plan
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.viable import viable_parts
from eindecomp.show.movements import moves_of, next_best, plan_price
from eindecomp.show.rows import fold, folded_rows, rows_of
from eindecomp.show.words import layout, short
from layered_graph import normed_layers
from strategies import graphs

EXAMPLES = Path(__file__).parents[2] / "examples"
ASKED: dict[str, dict[str, Any]] = {
    "bytes": {},
    "sharded": {"inputs": "sharded"},
    "bound": {"objective": "bound"},
    "time": {"objective": "time", "machine": "cpu-cluster"},
}


def attention(devices: int = 8, **asked: Any) -> Plan:
    return plan(ed.load(EXAMPLES / "multihead_attention.ein"), devices, **asked)


def test_a_new_user_can_read_attention() -> None:
    text = attention(inputs="sharded").explain(width=140)
    assert "Plan of 10 vertices for 8 devices (mesh axis0=2 × axis1=2 × axis2=2)" in text
    assert "Cost 384 KiB (393,216 bytes) that devices receive.\nProved optimal among" in text
    heads = [line for line in text.splitlines() if line.startswith(" T[h,s,t] <- sum")]
    assert re.fullmatch(
        r" T\[h,s,t\] <- sum QH\[s,h,d\] \* KH\[t,h,d\] +h/4 s/2 +8 +0 +0 +32 KiB +8.33 % +"
        r"h over axis1·axis2, s over axis0",
        heads[0],
    )
    assert "Input layouts" in text
    assert re.search(r"32 KiB +KH to T: from t over axis0, h over axis1·axis2 to ", text)
    assert re.search(r"32 KiB +Y: partial results over h/2 are reduced; result layout: ", text)
    assert re.search(r"T h/4 s/2 +h/4 t/2 would cost 256 KiB more, in repartition", text)


def test_the_documentation_shows_what_is_printed() -> None:
    page = (EXAMPLES.parent / "docs" / "planning.md").read_text()
    shown = page.split("<!-- explain, 110 wide -->\n```\n")[1].split("\n```")[0]
    made = replace(attention(), seconds=0.15)
    assert shown.splitlines() == made.explain(width=110).splitlines()


@pytest.mark.long
def test_the_summary_is_a_paragraph() -> None:
    made = attention(objective="bound", strategy=["h"], solver="exact")
    said = str(made)
    assert len(said.splitlines()) == 4
    assert f"{made.cost:,} elements" in said
    assert "strategy h" in said
    assert "solver exact" in said
    assert "all partitions of every vertex into as many pieces as there are devices" in said
    assert said.splitlines()[2].endswith("; within this strategy.")
    assert len(repr(made)) < 100
    limited = attention(memory="1GB")
    assert "at most 954 MiB (1,000,000,000 bytes) on each device" in str(limited)
    assert "; within this memory limit, counted from above." in str(limited)


def test_what_is_pinned_is_said_and_kept() -> None:
    made = attention(pin={"T": {"h": 2, "s": 4}, "Q": {"s": 2}})
    assert "inputs free, pinned T, Q." in str(made)
    assert "; within these pins." in str(made)
    other = next_best(made, "T")
    assert other is not None
    assert all(pieces % other.parts[label] == 0 for label, pieces in {"h": 2, "s": 4}.items())
    free = next_best(replace(made, pin={}), "T")
    assert free is not None
    assert free.more < other.more
    graph = ed.parse("input X[i: 8, j: 8]\nY[i,j] <- exp(X[i,j])\noutput Y")
    single = plan(graph, 4, pin={"Y": {"i": 4}})
    assert next_best(single, "Y") is None
    assert "no other cut is possible with these pins" in single.explain()
    many = replace(single, pin={name: {} for name in "ABCDEFGH"})
    assert "pinned A, B, C, D, E, F and 2 more" in str(many)


def test_the_rule_of_pieces_is_said_unless_it_is_the_usual_one() -> None:
    assert "pieces" not in str(attention()).partition(".")[0]
    for pieces, said in (("even", "in equal pieces"), ("ceil", "in chunks of the ceiling")):
        words = str(attention(pieces=pieces))
        assert f"{pieces} pieces" in words
        assert f"every nested layout on this mesh, {said};" in words
    sharded = attention(objective="bound", inputs="sharded", pieces="even")
    assert "equal pieces" in str(sharded)
    sharded.explain()


def test_a_gap_is_said() -> None:
    made = replace(attention(), bound=21504)
    assert (
        "none costs less than 21 KiB (21,504 bytes), gap 25 %, among: every nested layout"
        in str(made)
    )


def test_the_proof_names_the_plans_it_speaks_of() -> None:
    """Computing something on several devices is a choice only where computing has its price."""
    rule = "every vertex divided among all devices"
    assert rule in str(attention())
    assert "every nested layout on this mesh; at most one extra copy per tensor" in str(attention())
    assert "; within these ties." in str(replace(attention(), tie={"W": "new_W"}))
    assert "every vertex divided among any number of devices" in str(
        attention(objective="time", machine="cpu-cluster", work=None)
    )
    alone = str(ed.plan(ed.load(EXAMPLES / "matmul.ein"), 1))
    assert "Proved optimal among: contraction order as written." in alone


def test_what_free_inputs_leave_out_is_said() -> None:
    assert "Not counted: placing free inputs" in str(attention())
    assert "Not counted" not in str(attention(inputs="sharded"))


@pytest.mark.long("1-time", "6-time", "8-time")
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("devices", [1, 6, 8])
def test_rows_add_up_to_the_cost(asked: str, devices: int) -> None:
    made = attention(devices, **ASKED[asked])
    rows = rows_of(made)
    assert [row.vertex for row in rows] == list(made.parts)
    assert sum(row.cost for row in rows) == pytest.approx(made.cost, rel=1e-12)
    for row in rows:
        assert row.parts == made.parts[row.vertex]
        assert row.pieces * row.copies == made.devices
        assert row.statement in str(made.graph)
    if made.objective != "time":
        moved = sum(move.cost for move in moves_of(made, rows))
        joined = sum(made.costs.join.values()) if asked == "bound" else 0
        assert moved + joined == made.cost


@given(graphs(), st.sampled_from([1, 2, 4, 6]), st.sampled_from(sorted(ASKED)))
def test_any_plan_is_explained_in_any_width(graph: ed.Graph, devices: int, asked: str) -> None:
    made = plan(graph, devices, **ASKED[asked])
    for width in (20, 60, 100, 160):
        text = made.explain(width=width)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= max(width, 40)
    moved = sum(move.cost * move.times for move in moves_of(made, folded_rows(made)))
    assert moved <= made.cost * (1 + 1e-9)
    assert sum(row.cost * row.times for row in folded_rows(made)) == pytest.approx(made.cost)


def test_the_table_shows_every_exact_number() -> None:
    made = attention(objective="bound")
    table = made.explain(width=200).split("\n\n")[1]
    shown = 0
    for line in table.splitlines()[2:]:
        numbers = re.findall(r"(?<= )[\d,]+(?= )", line.split(" 8 ", 1)[1])
        shown += sum(int(number.replace(",", "")) for number in numbers[:3])
    assert shown == made.cost


@pytest.mark.parametrize(("devices", "objective"), [(8, "bytes"), (4, "bound")])
def test_repeated_layers_are_folded(devices: int, objective: str) -> None:
    made = plan(normed_layers(24), devices, objective=objective)
    rows = folded_rows(made)
    assert len(rows) < len(rows_of(made)) / 4
    assert sum(row.times for row in rows) == len(made.parts)
    assert sum(row.cost * row.times for row in rows) == made.cost
    text = made.explain(width=150)
    assert re.search(r"×2[0-9] ", text)
    assert "costs are for one of them, shares and totals for all" in text
    assert len(text.splitlines()) < 80


@given(st.text("ab", max_size=6), st.text("abc", min_size=1, max_size=5), st.integers(1, 6))
def test_folding_keeps_every_row(before: str, block: str, times: int) -> None:
    keys = before + block * times + before
    unfolded = "".join(keys[at : at + length] * n for at, length, n in fold(keys))
    assert unfolded == keys


def test_layouts_in_words() -> None:
    mesh = Mesh.of_axes({"node": 2, "gpu": 4, "core": 2})
    whole = Span((), 8, 1, 0, 8)

    def words(*cut: Span) -> str:
        return layout(mesh, ["s", "t"][: len(cut)], [8, 8][: len(cut)], cut)

    assert words(whole, whole) == "whole on every device"
    assert words() == "whole on every device"
    assert words(Span((0, 1), 8, 1, 0, 8), whole) == "s over node·gpu, replicated over core"
    assert words(Span((1, 0), 8, 1, 0, 8), Span((2,), 8, 1, 0, 8)) == (
        "s over gpu·node, t over core"
    )
    assert words(whole, Span((), 3, 1, 2, 5)) == "t in 2:5, whole on every device"
    assert layout(Mesh((), ()), ["s"], [8], (whole,)) == "whole"


@pytest.mark.parametrize(
    ("amount", "objective", "shown"),
    [
        (0, "time", "0"),
        (1023, "bytes", "1,023 B"),
        (1024, "bytes", "1 KiB"),
        (3 << 40, "bytes", "3 TiB"),
        (1023 * 1024, "bytes", "1,023 KiB"),
        (-1536, "bytes", "−1.5 KiB"),
        (999_999, "bound", "999,999"),
        (1_234_567, "bound", "1.23 M"),
        (5e14, "bound", "500 T"),
        (1.5, "time", "1.5 s"),
        (0.0123, "time", "12.3 ms"),
        (1e-12, "time", "0 ns"),
    ],
)
def test_amounts_are_short(amount: float, objective: str, shown: str) -> None:
    assert short(amount, objective) == shown


# Runners-up


def test_the_next_best_is_the_best_other_partition_by_the_papers_cost() -> None:
    made = attention(objective="bound", devices=12)
    parts = {name: tuple(own.values()) for name, own in made.parts.items()}
    for name, own in parts.items():
        view = view_of(made.graph, made.graph[name])
        others: list[list[int]] = viable_parts(view.sizes, made.mesh.sizes).tolist()
        costs = [
            paper_cost(made.graph, parts | {name: tuple(other)}).total
            for other in others
            if tuple(other) != own
        ]
        found = next_best(made, name)
        assert found is not None
        assert made.cost + found.more == min(costs)
        changed = paper_cost(made.graph, parts | {name: tuple(found.parts.values())})
        assert changed.join[name] == made.costs.join[name] + found.join
        assert changed.aggregate[name] == made.costs.aggregate[name] + found.aggregate


@pytest.mark.parametrize("devices", [2, 4, 6])
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_the_next_best_costs_what_planning_all_else_fixed_costs(devices: int, inputs: str) -> None:
    """No other decision for the vertex alone, of other parts, is cheaper than the next best."""
    from eindecomp.planner.space.choices import Decision, choices, refined, unassigned

    graph = ed.parse("""
        input X[i: 8, j: 6], W[j, k: 4]
        Y[i,k] <- sum X[i,j] * W[j,k]
        M[k] <- max Y[i,k]
        Z[i,k] <- Y[i,k] - M[k]
        output Z
    """)
    made = plan(graph, devices, inputs=inputs, rewrite=False)
    for name in made.parts:
        view = view_of(graph, graph[name])
        costs: list[float] = []
        for rows in refined(
            view.sizes, made.mesh, unassigned(view), tuple(range(len(made.mesh.sizes)))
        ):
            own = choices(view, made.mesh, (rows,))
            if tuple(own.parts[0].tolist()) == tuple(made.parts[name].values()):
                continue
            for (_, home), places in own.places.items():
                for second in (None, made.decisions[name].second):
                    other = Decision(rows, places, own.homes[home], second)
                    decisions = {**made.decisions, name: other}
                    price = PriceInBytes(made.mesh)
                    costs.append(decided_cost(graph, price, decisions, made.given).total)
        found = next_best(made, name)
        assert (found is None) == (not costs)
        if found is not None:
            assert made.cost <= made.cost + found.more <= min(costs)


@pytest.mark.long
def test_alternatives_on_many_axes_move_two_of_them() -> None:
    made = attention(64, inputs="sharded")
    found = next_best(made, "T")
    assert found is not None
    assert found.parts != made.parts["T"]
    assert found.more >= 0 or made.gap > 0


def test_alternatives_keep_to_the_strategy() -> None:
    graph = ed.parse("input X[i: 8, j: 8]\nY[i,j] <- exp(X[i,j])\noutput Y")
    made = plan(graph, 4, strategy=["i"])
    assert next_best(made, "Y") is None
    assert "no other cut is possible within this strategy" in made.explain()


def test_a_plan_that_is_not_optimal_says_so() -> None:
    best = attention(objective="bound")
    parts = {**best.parts, "O_1": {"s": 1, "h": 8, "d": 1, "t": 1}}
    costs = paper_cost(best.graph, {name: tuple(own.values()) for name, own in parts.items()})
    worse = replace(best, parts=parts, costs=costs)
    found = next_best(worse, "O_1")
    assert found is not None
    assert worse.cost + found.more == best.cost
    assert found.parts == best.parts["O_1"]
    assert re.search(
        r"s/2 h/2 t/2 would cost [\d,]+ less .*: this plan is\s+not optimal", worse.explain(200)
    )
    assert "not optimal" not in best.explain()


@pytest.mark.long
def test_prices_follow_the_objective() -> None:
    made = attention(6, objective="time", machine="cpu-cluster")
    again = decided_cost(made.graph, plan_price(made), made.decisions, made.given)
    assert again.total == made.cost
    found = next_best(made, "O")
    assert found is not None
    assert found.more >= -1e-9 * made.cost
