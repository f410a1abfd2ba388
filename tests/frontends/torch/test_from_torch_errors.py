"""What cannot be imported is named, with its place in the user's code."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import eindecomp as ed
from eindecomp.frontends.input_names import input_name, qualified
from eindecomp.frontends.torch.registry import OPERATORS, register_torch_operator


class Inner(nn.Module):
    def forward(self, x):
        return torch.atan(x)  # the line that the error names


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.ModuleList([Inner()])

    def forward(self, x):
        return self.block[0](x * 2)


def test_an_unknown_operator_is_named_with_its_line_and_module():
    with pytest.raises(ed.GraphError) as error:
        ed.from_torch(Outer(), torch.zeros(3))
    message = str(error.value)
    for part in ("aten.atan.default", "register_torch_operator", "the line that the error names",
                 "test_from_torch_errors.py", "in module block.0"):  # fmt: skip
        assert part in message


def test_an_operator_can_be_added():
    def half_turn(op, x):
        return op.map("x / (1 + abs(x))", x)

    register_torch_operator("aten.atan.default", half_turn)
    try:
        graph = ed.from_torch(Outer(), torch.zeros(3))
    finally:
        del OPERATORS["aten.atan.default"]
    x = np.array([1, 2, 4], "float32")
    np.testing.assert_allclose(ed.evaluate(graph, {"x": x})["out"], 2 * x / (1 + 2 * x), rtol=1e-6)


REFUSED = {
    "evaluation mode": (nn.Dropout(0.5).train(), (2, 3)),
    "running statistics|changes": (nn.BatchNorm1d(3).train(), (2, 3)),
    r"result 1 of aten\.max_pool2d_with_indices": (
        nn.MaxPool2d(2, return_indices=True),
        (1, 1, 4, 4),
    ),
    "random|not imported": (nn.RReLU().train(), (2, 3)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_says_why(reason):
    module, shape = REFUSED[reason]
    with pytest.raises(ed.GraphError, match=reason):
        ed.from_torch(module, torch.zeros(shape))


def test_arguments_that_are_not_understood_are_not_overlooked():
    function = lambda x: torch.round(x, decimals=2)  # noqa: E731
    with pytest.raises(ed.GraphError, match=r"aten\.round\.decimals"):
        ed.from_torch(function, torch.zeros(3))


def test_arguments_that_are_changed_are_named():
    with pytest.raises(ed.GraphError, match=r"changes its argument 'x' in place.*clone"):
        ed.from_torch(lambda x: x.add_(1), torch.zeros(3))


def test_rules_of_torch_that_fail_leave_the_operator_unknown():
    function = lambda x: torch.nn.functional.margin_ranking_loss(x, x, x, reduction="sum")  # noqa: E731
    with pytest.raises(ed.GraphError, match=r"aten\.margin_ranking_loss\.default"):
        ed.from_torch(function, torch.ones(3))
    with pytest.raises(ed.GraphError, match=r"aten\.item\.default"):
        ed.from_torch(lambda x: x * x.sum().item(), torch.ones(3))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_branches_on_data_are_refused_in_one_line(capfd):
    module = nn.Sequential(nn.Linear(3, 3), Branching())
    with pytest.raises(ed.GraphError, match="depends on the values of a tensor") as error:
        ed.from_torch(module, torch.ones(2, 3))
    message = str(error.value)
    assert "in module 1" in message
    assert "test_from_torch_errors.py" in message
    assert len(message.splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_masks_of_a_transformer_are_not_looked_at():
    module = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    x, mask = torch.randn(2, 4, 8), nn.Transformer.generate_square_subsequent_mask(4)
    graph = ed.from_torch(module, (x, x), example_kwargs={"tgt_mask": mask})
    found = ed.torch_weights(module, graph) | {"src": x, "tgt": x}
    for other in (mask, torch.zeros(4, 4)):
        with torch.no_grad():
            expected = module(x, x, tgt_mask=other)
        made = ed.evaluate(graph, found | {"tgt_mask": other})["out"]
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_what_nothing_depends_on_need_not_be_imported():
    def drawn(x):
        torch.rand([]) * 2
        return x + 1

    graph = ed.from_torch(drawn, torch.zeros(3))
    np.testing.assert_array_equal(ed.evaluate(graph, {"x": np.zeros(3)})["out"], np.ones(3))


def test_shapes_that_depend_on_data_are_refused():
    with pytest.raises(ed.GraphError):
        ed.from_torch(lambda x: x[x > 0], torch.zeros(3))


def test_examples_that_are_none_are_refused():
    with pytest.raises(ed.InputError, match="example inputs"):
        ed.from_torch(nn.Linear(2, 2), 3)


def test_weights_on_the_meta_device_have_no_values():
    with torch.device("meta"):
        module = nn.Linear(3, 2)
    graph = ed.from_torch(module, torch.zeros(4, 3))
    with pytest.raises(ed.InputError, match="meta device"):
        ed.torch_weights(module, graph)
    real = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    found = ed.evaluate(graph, {**ed.torch_weights(real, graph), "_input": x})["out"]
    np.testing.assert_allclose(found, real(x).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["0.weight", "_0.weight", "a.b", "size", "_size", "__1", "x_0"])
def test_names_can_be_turned_back(name):
    assert qualified(input_name(name)) == name
    graph = ed.Graph()
    graph.input(input_name(name), {"i": 2})


def test_importing_eindecomp_imports_no_torch():
    code = "import sys, eindecomp; dir(eindecomp); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own words


class Returned(nn.Module):
    """Returns a tree, takes numbers and keywords, and holds a table of its own."""

    def __init__(self):
        super().__init__()
        self.table = torch.randn(20, 30)

    def forward(self, x, times, *, shift=None, double=False):
        y = x * times + self.table.sum(0)
        y = y if shift is None else y + shift
        return {"first": y, "rest": (y * 2 if double else y, [x.sum()])}


def test_outputs_are_named_after_what_is_returned():
    module, x, shift = Returned(), torch.randn(4, 30), torch.randn(30)
    graph = ed.from_torch(module, (x, 3), example_kwargs={"shift": shift, "double": True})
    assert [v.name for v in graph.outputs] == ["first", "rest_0", "rest_1_0"]
    inputs = ed.torch_weights(module, graph) | {"x": x, "shift": shift}
    assert {*inputs} == {v.name for v in graph.inputs}
    found = ed.evaluate(graph, inputs)
    expected = module(x, 3, shift=shift, double=True)
    np.testing.assert_allclose(found["first"], expected["first"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["rest_0"], expected["rest"][0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["rest_1_0"], expected["rest"][1][0], rtol=1e-4, atol=1e-4)


def test_inputs_that_are_not_used_can_be_given_all_the_same():
    graph = ed.from_torch(
        lambda x, y: (x, x + 1),  # noqa: ARG005 - which is the point
        (torch.zeros(2), torch.zeros(3)),
    )
    assert [v.name for v in graph.inputs] == ["x", "y"]
    found = ed.evaluate(graph, {"x": [1, 2], "y": [0, 0, 0]})
    np.testing.assert_array_equal(found["out_0"], [1, 2])
    np.testing.assert_array_equal(found["out_1"], [2, 3])
