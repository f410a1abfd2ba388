"""The tiles of a tensor are those that the program of the plan gives each device."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import classed, read_svg, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import eindecomp as ed
from eindecomp.errors import EinDecompError, PlanError
from eindecomp.graph.ops import Fill
from eindecomp.layout.boxes import Box, volume
from eindecomp.layout.tiling import TileGrid, box_on
from eindecomp.planner.make import plan
from eindecomp.show.tile_grid import devices_words
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Compute, Role
from strategies import graphs

EXAMPLES = Path(__file__).parents[2] / "examples"
MATMUL = "input X[i: 8, j: 8], Y[j: 8, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def held(grid: TileGrid, device: int) -> list[Box]:
    return [box for box in grid.tiles_on(device) if volume(box)]


@settings(max_examples=30)
@given(
    graphs(),
    st.sampled_from([2, 4, 6, 7, 8]),
    st.sampled_from(["free", "sharded"]),
    st.sampled_from(["balanced", "ceil"]),
)
def test_a_device_holds_the_tiles_that_the_program_gives_it(
    graph: ed.Graph, devices: int, inputs: str, pieces: str
) -> None:
    made = plan(graph, devices, inputs=inputs, pieces=pieces)
    program = program_of(made)
    for buffer in program.buffers:
        vertex = made.graph[buffer.tensor]
        lasting = buffer.role in (Role.HOME, Role.SECOND) and not isinstance(vertex.op, Fill)
        if lasting or (buffer.role is Role.GIVEN and buffer.tensor in made.given):
            grid = made.draw_tiles(buffer.tensor)
            if buffer.role is Role.SECOND:
                [grid] = grid.others
            for device in range(devices):
                box = buffer.box(made.mesh, device)
                assert held(grid, device) == ([box] if volume(box) else [])


@settings(max_examples=15)
@given(graphs(), st.sampled_from([3, 4, 7]))
def test_free_inputs_lie_as_they_are_read(graph: ed.Graph, devices: int) -> None:
    made = plan(graph, devices)
    read: dict[str, set[tuple[int, Box]]] = {}
    for step in program_of(made).steps:
        if isinstance(step, Compute):
            sources = zip(made.graph[step.vertex].inputs, step.reads, strict=True)
            for source, operand in sources:
                if operand is not None and source not in made.given and source not in made.parts:
                    for device in range(devices):
                        box = box_on(made.mesh, operand.cut, device)
                        read.setdefault(source, set()).update(
                            {(device, box)} if volume(box) else ()
                        )
    for source, expected in read.items():
        first = made.draw_tiles(source)
        grids = (first, *first.others)
        shown = {(d, box) for grid in grids for d in range(devices) for box in held(grid, d)}
        assert shown == expected


def test_the_paper_s_figure() -> None:
    """A 4 by 4 grid of 2 by 2 tiles, as the first of the paper's four partitionings."""
    made = plan(ed.parse(MATMUL), 16, strategy="sqrt")
    grid = made.draw_tiles("Z")
    assert grid.pieces == (((0, 2), (2, 4), (4, 6), (6, 8)),) * 2
    assert [len(own) for own in grid.holders.values()] == [1] * 16
    drawn = read_svg(grid.svg)
    assert len(classed(drawn, "tile")) == 16
    assert sorted(int(t) for t in texts(drawn) if t.isdecimal()) == list(range(16))
    replicated = made.draw_tiles("X")
    assert {len(own) for own in replicated.holders.values()} == {4}


def test_a_grid_is_text_and_coloured_text() -> None:
    grid = plan(ed.parse(MATMUL), 4).draw_tiles("Z")
    assert str(grid).splitlines()[0] == "Z[i: 8, k: 8]"
    console = Console(force_terminal=True, color_system="truecolor", width=100)
    with console.capture() as capture:
        console.print(grid)
    assert "\x1b[" in capture.get()
    assert "\x1b[" not in str(grid)


def test_three_dimensions_are_rows_and_columns() -> None:
    graph = ed.parse("input X[a: 4, b: 4, c: 4]\nZ[a,b,c] <- exp(X[a,b,c])\noutput Z")
    grid = plan(graph, 8, pin={"Z": {"a": 2, "b": 2, "c": 2}}).draw_tiles("Z")
    drawn = texts(read_svg(grid.svg))
    assert {"a, b", "0:2, 0:2", "2:4, 0:2", "c"} <= set(drawn)
    assert len(classed(read_svg(grid.svg), "tile")) == 8
    assert "│ 2:4, 0:2 │" in str(grid)


def test_large_grids_leave_out_the_middle_and_say_so() -> None:
    graph = ed.parse("input X[a: 2048, b: 4]\nZ[a,b] <- exp(X[a,b])\noutput Z")
    grid = plan(graph, mesh={"x": 1024}).draw_tiles("Z")
    assert len(grid.holders) == 1024
    assert "Of 1024 pieces of a, only the ends are shown." in texts(read_svg(grid.svg))
    assert len(str(grid).splitlines()) < 20
    assert "1023" in str(grid)


def listed(words: str) -> list[int]:
    """The devices that words name."""
    ends = (run.split("–") for run in words.split(", "))
    return [device for run in ends for device in range(int(run[0]), int(run[-1]) + 1)]


@given(st.sets(st.integers(0, 300) | st.sampled_from([2**20, 2**20 + 1]), min_size=1).map(sorted))
def test_devices_are_left_out_only_where_dots_say_so(devices: list[int]) -> None:
    first, *last = devices_words(devices).split(" … ")
    if not last:
        assert listed(first) == devices
    else:
        head, tail = listed(first), listed(last[0])
        assert devices[: len(head)] == head
        assert devices[-len(tail) :] == tail
        assert len(head) + len(tail) < len(devices)


def test_devices_in_few_runs_are_all_named() -> None:
    made = plan(ed.parse(MATMUL), mesh={"a": 2, "b": 2, "c": 64}, pin={"Z": {"i": ("b",)}})
    assert "  0–63, 128–191  " in str(made.draw_tiles("Z"))
    assert devices_words(range(2**20)) == "0–1048575"
    assert devices_words([1000, 2000, 3000]) == "1000, 2000, 3000"


@pytest.mark.parametrize("text", ["input X[i: 6]\nZ[] <- sum X[i]", "input X[]\nZ[] <- exp(X[])"])
def test_one_number_is_one_tile(text: str) -> None:
    made = plan(ed.parse(f"{text}\noutput Z"), 3)
    grid = made.draw_tiles("Z")
    assert grid.holders == {(): (0, 1, 2)}
    assert "0–2" in texts(read_svg(grid.svg))
    assert str(grid).splitlines()[2:] == ["┌───────┐", "│  0–2  │", "└───────┘"]


def test_all_layouts_of_an_input_are_shown() -> None:
    text = "input X[i: 8, j: 8]\nA[i] <- sum X[i,j]\nB[j] <- sum X[i,j]\noutput A, B"
    grid = plan(ed.parse(text), 2).draw_tiles("X")
    assert [other.role for other in (grid, *grid.others)] == ["as A reads it", "as B reads it"]
    assert len(classed(read_svg(grid.svg), "tile")) == 4


def test_mistakes_are_named(tmp_path: Path) -> None:
    made = plan(ed.load(EXAMPLES / "multihead_attention.ein"), 2)
    with pytest.raises(EinDecompError, match="no tensor 'QHH'; did you mean 'QH'"):
        made.draw_tiles("QHH")
    for wrong in (None, 3, ["Q"]):
        with pytest.raises(PlanError, match="a tensor or its name, not"):
            made.draw_tiles(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(EinDecompError, match=r"tiles.doc: .* \.svg or \.txt"):
        made.draw_tiles("QH", tmp_path / "tiles.doc")
    with pytest.raises(OSError, match="missing"):
        made.draw_tiles("QH", tmp_path / "missing" / "tiles.svg")


def test_it_is_written_as_picture_or_text(tmp_path: Path) -> None:
    made = plan(ed.parse(MATMUL), 4)
    grid = made.draw_tiles("Z", tmp_path / "z.svg")
    made.draw_tiles("Z", str(tmp_path / "z.txt"))
    assert (tmp_path / "z.svg").read_text() == grid.svg == grid._repr_svg_()
    assert (tmp_path / "z.txt").read_text() == f"{grid}\n"
