"""`eindecomp import`: models of other frameworks as graphs, and what is said of those that fail."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app

pytest.importorskip("torch")
pytest.importorskip("jax")
transformers = pytest.importorskip("transformers")

FAILING = 'def fails(): raise ValueError("no such weights\\nand more")'
TORCH = f"""\
import torch
from torch import nn

class Product(nn.Module):
    def forward(self, x, y):
        return x @ y

class Wrong(nn.Module):
    def forward(self, x):
        return x.wrongly()

example = torch.zeros(4, 3)
value = 3

def plain(): return nn.Linear(3, 2), example
def arguments(): return Product(), (example, torch.zeros(3, 2))
def keywords(): return nn.Linear(3, 2), (), {{"input": example}}
def alone(): return nn.Linear(3, 2)
def no_module(): return 3, example
def no_keywords(): return nn.Linear(3, 2), (), 7
{FAILING}
def leaves(): raise SystemExit("enough")
def needs(size): return nn.Linear(size, 2), example
def wrong(): return Wrong(), example
def shapes(): return nn.Linear(5, 2), example
"""
JAX = """\
import jax.numpy as jnp
import numpy as np

def net(w, x, scale=2.0): return scale * jnp.tanh(x @ w)
def example(): return net, np.zeros((8, 4), "float32"), np.zeros((2, 8), "float32")
def number(): return 3
def wrong(): return net, np.zeros((8, 4), "float32"), np.zeros((2, 9), "float32")
def fails(): raise ValueError("of no use")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command in a folder with modules of the user's."""
    (tmp_path / "torch_code.py").write_text(TORCH)
    (tmp_path / "jax_code.py").write_text(JAX)
    (tmp_path / "broken_code.py").write_text("import json\nimport nowhere_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield lambda *args: CliRunner().invoke(app, ["import", *args])
    for name in ("torch_code", "jax_code", "broken_code"):
        sys.modules.pop(name, None)


def told(result):
    """The one line that an error is told in."""
    assert result.exit_code == 1
    start = "eindecomp: "
    *notes, message = result.stderr.splitlines()
    assert all(note.startswith(f"{start}importing ") for note in notes)
    assert message.startswith(start)
    return message.removeprefix(start)


@pytest.mark.parametrize(
    ("factory", "inputs"),
    [
        ("plain", ["weight", "bias", "_input"]),
        ("arguments", ["x", "y"]),
        ("keywords", ["weight", "bias", "_input"]),
    ],
)
def test_a_factory_gives_a_module_and_its_example(run, factory, inputs):
    found = run("torch", f"torch_code:{factory}")
    assert found.exit_code == 0
    assert found.stderr.startswith("eindecomp: importing torch_code, which runs its code\n")
    graph = ed.parse(found.stdout)
    assert [vertex.name for vertex in graph.inputs] == inputs
    assert [vertex.shape for vertex in graph.outputs] == [(4, 2)]


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("alone", "torch_code:alone returns (module, args) or (module, args, kwargs)"),
        ("no_module", "torch_code:no_module returns (module, args) or (module, args, kwargs)"),
        ("no_keywords", "torch_code:no_keywords returns (module, args) or (module, args, kwargs)"),
        ("value", "torch_code:value is a int, not a function"),
        ("needs", "torch_code:needs: TypeError: needs() missing 1 required positional argument"),
        ("leaves", "torch_code:leaves: SystemExit: enough (at "),
        ("shapes", "torch.export cannot export the module: a and b must have same reduction dim"),
        ("plane", "torch_code has no 'plane'; did you mean 'plain'?"),
    ],
)
def test_factories_that_are_none_say_why(run, factory, message):
    assert told(run("torch", f"torch_code:{factory}")).startswith(message)


@pytest.mark.parametrize(
    ("factory", "line", "message"),
    [
        ("fails", FAILING, "ValueError: no such weights"),
        ("wrong", "        return x.wrongly()", "no attribute 'wrongly'"),
    ],
)
def test_errors_of_the_users_code_name_its_line(run, tmp_path, factory, line, message):
    found = told(run("torch", f"torch_code:{factory}"))
    number = TORCH.splitlines().index(line) + 1
    assert message in found
    assert found.endswith(f"(at {tmp_path / 'torch_code.py'}:{number})")


def test_modules_that_cannot_be_imported(run, tmp_path):
    assert told(run("torch", "nowhere:make")) == "there is no module 'nowhere' here, nor installed"
    found = told(run("torch", "broken_code:make"))
    assert "No module named 'nowhere_at_all'" in found
    assert found.endswith(f"(at {tmp_path / 'broken_code.py'}:2)")
    found = run("torch", "torch_code")
    assert found.exit_code == 2
    assert "package.module:name" in found.stderr


def test_a_function_of_jax_with_its_arguments(run):
    graph = ed.parse(run("jax", "jax_code:example").stdout)
    assert {v.name: v.shape for v in graph.inputs} == {"w": (8, 4), "x": (2, 8)}


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("net", "jax_code:net: TypeError: net() missing 2 required positional arguments"),
        ("number", "jax_code:number returns (function, argument, …)"),
        ("wrong", "jax_code:wrong: TypeError: dot_general requires"),
        ("fails", "jax_code:fails: ValueError: of no use (at "),
        ("np.pi", "jax_code:np.pi is a float, not a function"),
    ],
)
def test_functions_that_cannot_be_imported_say_why(run, factory, message):
    assert told(run("jax", f"jax_code:{factory}")).startswith(message)


def test_a_file_is_written_and_json_printed(run, tmp_path):
    path = tmp_path / "net.ein"
    found = run("torch", "torch_code:plain", "-o", str(path))
    assert found.stdout == "5 vertices, 3 of them inputs; outputs: out\n"
    printed = run("torch", "torch_code:plain", "--json")
    described = json.loads(printed.stdout)
    assert described["text"] + "\n" == path.read_text()
    assert described["vertices"] == len(ed.load(path))
    expected = {"name": "out", "labels": ["b", "f"], "shape": [4, 2], "dtype": "float32"}
    assert described["outputs"] == [expected]


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(run, tmp_path):
    found = run("torch", "torch_code:plain", "-o", str(tmp_path / "nowhere" / "net.ein"))
    assert found.exit_code == 1
    assert "nowhere/net.ein" in told(found)
    assert "torch_code" not in sys.modules


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 24}
CONFIGURATIONS = {
    "llama": ("LlamaForCausalLM", {"vocab_size": 32, "num_attention_heads": 4}),
    "bert": ("BertModel", {"vocab_size": 32, "num_attention_heads": 2}),
    "vit": ("ViTModel", {"num_attention_heads": 2, "image_size": 16, "patch_size": 4}),
}


def written(folder, kind="llama", **more):
    """A folder with the configuration of a small model, as transformers writes it."""
    architecture, sizes = CONFIGURATIONS[kind]
    config = transformers.AutoConfig.for_model(kind, **SMALL, **sizes)
    config.architectures = [architecture]
    config.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "options", "given", "output"),
    [
        ("llama", ["--batch", "2", "--tokens", "8"], (2, 8), ("logits", (2, 8, 32))),
        ("bert", ["--tokens", "6"], (1, 6), ("last_hidden_state", (1, 6, 16))),
        ("vit", ["--batch", "3"], (3, 3, 16, 16), ("last_hidden_state", (3, 17, 16))),
    ],
)
def test_models_of_hugging_face(run, tmp_path, kind, options, given, output):
    found = run("hf", written(tmp_path, kind), *options, "--dtype", "float16")
    assert found.exit_code == 0, found.exception
    graph = ed.parse(found.stdout)
    model_input = "pixel_values" if kind == "vit" else "input_ids"
    assert graph[model_input].shape == given
    first = graph.outputs[0]
    assert (first.name, first.shape) == output
    assert first.dtype.name == "float16"


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"architectures": None}, [], "names no architecture"),
        ({"architectures": ["LlamaForDreams"]}, [], "no model 'LlamaForDreams'"),
        ({"architectures": ["pipeline"]}, [], "no model 'pipeline'"),
        ({"architectures": ["BertModel"]}, [], "model_type is 'llama', which BertModel is not"),
        ({"model_type": "dream"}, [], "dream"),
        ({"hidden_size": 18}, [], "not a multiple of the number of attention heads"),
        ({"max_position_embeddings": 64}, [], "takes 64 tokens at most, not 128"),
        ({}, ["--dtype", "int8"], "'int8' is not a type of weights"),
        ({"attn_implementation": "someone/kernels"}, [], "'someone/kernels' as an implementation"),
    ],
)
def test_folders_that_cannot_be_imported_say_why(run, tmp_path, more, options, message):
    assert message in told(run("hf", written(tmp_path, **more), *options))


def test_a_folder_without_a_configuration(run, tmp_path):
    assert told(run("hf", str(tmp_path))) == f"{tmp_path} has no config.json"
    (tmp_path / "config.json").write_text("{")
    assert told(run("hf", str(tmp_path))).startswith(f"{tmp_path / 'config.json'}: ")


@pytest.mark.parametrize("kind", ["llama", "dream"])
def test_nothing_in_a_folder_is_run(run, tmp_path, kind):
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w').close()\nclass Config: ...\nclass Model: ...\n"
    (tmp_path / "modeling_dream.py").write_text(code)
    own = {"AutoConfig": "modeling_dream.Config", "AutoModel": "modeling_dream.Model"}
    found = run("hf", written(tmp_path, model_type=kind, auto_map=own), "--tokens", "8")
    assert not mark.exists()
    if kind == "llama":  # which transformers has itself
        assert ed.parse(found.stdout)["logits"].shape == (1, 8, 32)
    else:
        assert "custom code" in told(found)
