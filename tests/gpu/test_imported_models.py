"""Imported models by engine `torch`, resident and paged, as a user runs them: regions compiled."""

from __future__ import annotations

import numpy as np
import pytest
from torch_ways import HERE, ON_GPU, PAGED, torch

pytest.importorskip("transformers", reason="transformers is not installed")

from tiny_models import MODELS, made

import eindecomp as ed

WAYS = {"resident": HERE, "paged": PAGED}
if ON_GPU:  # where regions are compiled unless one says otherwise; elsewhere that takes minutes
    WAYS |= {"compiled": {}, "compiled and paged": {"gpu_memory": "1GB"}}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # by torch of itself
def test_a_model_gives_what_torch_gives(name, way):
    module, example = made(name)
    with torch.no_grad():
        expected = module(**example)
    expected = {"out": expected} if isinstance(expected, torch.Tensor) else {**expected}
    graph = ed.from_torch(module, example)
    given = {k: v for k, v in example.items() if isinstance(v, torch.Tensor)}
    if "input" in given:
        given["_input"] = given.pop("input")
    with ed.compile(ed.plan(graph, 1), "torch", **WAYS[way]) as executable:
        weights = executable.place(ed.torch_weights(module, graph))
        for _ in range(3):  # the later ones may be captured
            result = executable({**given, **weights})
            for key, tensor in expected.items():
                np.testing.assert_allclose(result[key], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", ["resident", "paged"])
def test_a_model_on_the_gpu_is_imported_and_given_as_it_is(way):
    module, example = made("grouped")
    with torch.no_grad():
        expected = module(**example)["logits"]
    module = module.to(HERE["device"])
    ids = example["input_ids"].to(HERE["device"])
    graph = ed.from_torch(module, example | {"input_ids": ids})
    given = ed.torch_weights(module, graph) | {"input_ids": ids}
    result = ed.run(ed.plan(graph, 2), given, "torch", **WAYS[way])
    np.testing.assert_allclose(result["logits"], expected, rtol=1e-3, atol=1e-4)
