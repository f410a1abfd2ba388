"""The graph of a program whose results stay pending: all vertices keep their values."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.parts import with_parts
from pending_plans import BOTH, CASES, Own, P, Q, plan_by_hand, products

MESH = {"a": 2, "b": 3}


def test_parts_are_vertices_of_their_own():
    graph = products("R[i,j] <- bfloat16(P[i,j] + Q[i,j]) * bfloat16(3)", dtype="bfloat16")
    made = with_parts(graph, plan_by_hand(graph, MESH, P=P, Q=Q, R=Own(waits=BOTH)).decisions)
    assert made.parts == {"P": "P.part", "Q": "Q.part", "R": "R.part"}
    assert str(made.graph).splitlines()[4:] == [
        "P.part[i,j] <- sum A[i,k] * B[k,j]",
        "P[i,j] <- sum bfloat16(P.part[i,j])",
        "Q.part[i,j] <- sum C[i,l] * D[l,j]",
        "Q[i,j] <- sum bfloat16(Q.part[i,j])",
        "R.part[i,j] <- float32(P.part[i,j] + Q.part[i,j]) * bfloat16(3)",
        "R[i,j] <- sum bfloat16(R.part[i,j])",
        "output R",
    ]
    assert {made.graph[name].dtype for name in made.parts.values()} == {np.dtype("float32")}
    made.graph.verify()


def test_names_that_are_taken_are_left_alone():
    graph = products("P.part[i,j] <- P[i,j] + Q[i,j]\nR[i,j] <- exp(P.part[i,j])")
    own = {"P": P, "Q": Q, "P.part": Own(waits=BOTH)}
    program = program_of(plan_by_hand(graph, MESH, **own))
    assert {"P.part", "P.part_1", "P.part.part"} <= set(program.graph)


def test_without_anything_pending_the_graph_is_the_plans():
    plan = ed.plan(products(), mesh=MESH)
    assert program_of(plan).graph is plan.graph


@pytest.mark.parametrize("case", CASES)
def test_what_moves_is_what_devices_receive_and_send(case):
    program = program_of(CASES[case](MESH))
    rows = [program.on(device) for device in range(program.devices)]
    assert sum(row.received for row in rows) == sum(row.sent for row in rows) == program.moved
