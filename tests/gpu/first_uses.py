"""What somebody does first, each as a script of its own: on a GPU if there is one, else on the CPU.

A script starts neither CUDA nor JAX before the call that it is about, unless a person would.
"""

from __future__ import annotations

START = """
import numpy as np
import eindecomp as ed

def near(found, wanted):
    assert np.shape(found) == np.shape(wanted), (np.shape(found), np.shape(wanted))
    assert np.allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4), (found, wanted)

rng = np.random.default_rng(0)
x, y = rng.standard_normal((64, 32), np.float32), rng.standard_normal((32, 48), np.float32)
graph = ed.parse("input X[i: 64, j: 32], Y[j, k: 48]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
arrays = {"X": x, "Y": y}
"""
COMMAND = """
import json, subprocess, sys
def command(*given):
    start = [sys.executable, "-m", "eindecomp", "run", "--random", "--check"]
    told = subprocess.run([*start, "--engine", "torch", *given], capture_output=True)
    assert told.returncode == 0, told.stderr.decode()
    return told.stdout
"""
HERE = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
"""
FIRST_USES = {
    "run": 'near(ed.run(ed.plan(graph, devices=1), arrays, "torch")["Z"], x @ y)',
    "run on four devices": """
plan = ed.plan(graph, devices=4, inputs="sharded")
result = ed.run(plan, arrays, "torch")
near(result["Z"], x @ y)
assert result.stats.bytes_moved == plan.cost
""",
    "run without inputs": """
text = "A[i: 4, j: 6] <- fill i + j\\nZ[i] <- sum A[i,j]\\noutput Z"
near(ed.run(ed.plan(ed.parse(text), 1), {}, "torch")["Z"], [15, 21, 27, 33])
""",
    "command line": COMMAND
    + """
command(sys.argv[1] + "/examples/multihead_attention.ein", "-p", "1")
""",
    "command line, devices of the engine": COMMAND
    + """
told = command(sys.argv[1] + "/examples/matmul.ein", "--json")
import torch
assert json.loads(told)["tasks"] == max(torch.cuda.device_count(), 1)
""",
    "einsum": 'near(ed.einsum("ij,jk->ik", x, y, engine="torch"), x @ y)',
    "einsum of tensors": HERE
    + """
given = [torch.from_numpy(array).to(device) for array in (x, y)]
for engine in ("torch", None):
    found = ed.einsum("ij,jk->ik", *given, engine=engine)
    assert isinstance(found, torch.Tensor) and found.device == given[0].device, found.device
    near(found.cpu(), x @ y)
    near(ed.einsum("ij,jk->ik", given[0], y, engine=engine).cpu(), x @ y)
found[...] = 0  # it is the caller's
near(ed.einsum("ij,jk->ik", *given).cpu(), x @ y)
half = [array.bfloat16() for array in given]
assert ed.einsum("ij,jk->ik", *half).dtype == torch.bfloat16
""",
    "distances": """
wanted = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))
near(np.sqrt(ed.einsum("ik,jk->ij", x, x, join="(x-y)**2", engine="torch")), wanted)
near(ed.einsum("ik,jk->ij", x, x, join="abs(x-y)", agg="max", engine="torch"),
     abs(x[:, None] - x[None]).max(2))
""",
    "an imported module": """
import torch
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8))
given = torch.from_numpy(x)
graph = ed.from_torch(module, (given,))
[name] = [v.name for v in graph.inputs if v.shape == (64, 32)]
result = ed.run(ed.plan(graph, 1), ed.torch_weights(module, graph) | {name: given}, "torch")
[out] = result
near(result[out], module(given).detach().numpy())
""",
    "compile and place": """
with ed.compile(ed.plan(graph, 1), "torch") as executable:
    placed = executable.place(arrays)
    for _ in range(4):  # the later ones may be captured
        near(executable(placed)["Z"], x @ y)
""",
    "paged": """
result = ed.run(ed.plan(graph, 1), arrays, "torch", gpu_memory="1GB")
near(result["Z"], x @ y)
""",
    "fit": """
from eindecomp import models
graph = models.ffnn(batch=16, features=64, hidden=32, classes=10, optimizer="adam")
data = models.Synthetic(batch=16, features=64, classes=10, nonzeros=8)
asked = {"lr": 0.01, "steps": 5, "progress": False}
losses = [
    models.fit(graph, data, models.initial(graph), engine=engine, **asked).losses
    for engine in ("torch", "threads")
]
near(*losses)
""",
    "llama": """
from eindecomp.models.llama import Config, Llama
tiny = Config(vocabulary=20, width=16, layers=2, heads=4, kv_heads=2, head_size=4, hidden=24)
texts = []
for engine in ("torch", "threads"):
    with Llama.random(tiny, engine=engine) as model:
        texts.append([piece.token for piece in model.generate([1, 2, 3], tokens=8)])
assert texts[0] == texts[1], texts
""",
    "jax, run": """
near(ed.run(ed.plan(graph, devices=1), arrays, "jax")["Z"], x @ y)
""",
    "jax, einsum": """
near(ed.einsum("ij,jk->ik", x, y, engine="jax"), x @ y)
import jax
for engine in ("jax", None):
    found = ed.einsum("ij,jk->ik", jax.numpy.asarray(x), y, engine=engine)
    assert isinstance(found, jax.Array)
    near(found, x @ y)
""",
    "jax, four devices": """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
near(ed.run(ed.plan(graph, devices=4), arrays, "jax")["Z"], x @ y)
import jax
assert len(jax.devices()) == 4
try:
    ed.run(ed.plan(graph, devices=8), arrays, "jax")
except ed.InputError as error:
    assert "the plan is for 8 devices, and JAX has 4" in str(error)
else:
    raise AssertionError("eight devices of four")
""",
    "jax, devices that the environment names": """
import os
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=6"}
near(ed.run(ed.plan(graph, devices=2), arrays, "jax")["Z"], x @ y)
import jax
assert len(jax.devices()) == 6
""",
}
