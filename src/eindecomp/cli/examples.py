"""The examples that end the help of each command."""

from __future__ import annotations

from inspect import cleandoc

FIRST_STEPS = """\
\b
Write this to product.ein, a matrix product:
  input X[i: 256, j: 256], Y[j, k: 256]
  Z[i,k] <- sum X[i,j] * Y[j,k]
  output Z
and try:
  eindecomp plan product.ein -p 4 --inputs sharded     # for 4 devices
  eindecomp compare product.ein -p 4 --inputs sharded  # with usual ways
  eindecomp run product.ein -p 4 --random --check      # compute it"""

EXAMPLES = {
    "plan": """\
eindecomp plan model.ein -p 8
eindecomp plan model.ein --mesh node=4,gpu=8 --memory 70GB -o plan.json
eindecomp plan model.ein -p 8 --objective time --machine gpu-server""",
    "explain": """\
eindecomp explain plan.json
eindecomp explain model.ein -p 8 --strategy megatron --json""",
    "compare": """\
eindecomp compare plan.json
eindecomp compare model.ein -p 8 --with megatron --with h,f --with sqrt""",
    "draw": """\
eindecomp draw plan.json -o plan.svg
eindecomp draw model.ein -p 8 --tiles Z
eindecomp draw model.ein -p 8 --tiles Z -o tiles.svg""",
    "report": """\
eindecomp report plan.json -o plan.html
eindecomp report model.ein -p 8 --no-compare -o plan.html""",
    "simulate": """\
eindecomp simulate plan.json --machine gpu-server
eindecomp simulate model.ein -p 8 --machine cpu-cluster --trace trace.json""",
    "run": """\
eindecomp run model.ein -p 2 --random --check
eindecomp run plan.json --data data.npz -o out.npz --trace run.json
eindecomp run model.ein -p 8 --data X=x.npy --data W=weights.safetensors#w
mpirun -n 4 eindecomp run model.ein --data data.npz --engine spmd""",
    "llama": """\
eindecomp llama DIR --prompt "Once upon a time" -p 2 --max-tokens 100
eindecomp llama DIR --prompt "Once" --temperature 0.8 --top-k 50 --seed 1
eindecomp llama DIR < prompts.txt""",
    "solve": """\
eindecomp solve problem.json.gz --time 60 -o solution.json
eindecomp solve - --json < problem.json""",
    "bench": """\
eindecomp bench chain --quick
eindecomp bench llama -o results
mpirun -n 2 eindecomp bench ffnn --engine spmd""",
    "calibrate": """\
eindecomp calibrate -o machine.json
mpirun -n 8 eindecomp calibrate --engine spmd --mesh node=2,core=4""",
    "cache": """\
eindecomp cache
eindecomp cache --clear""",
    "export": """\
eindecomp export plan.json --to dtensor
eindecomp export plan.json --to jax -o shardings.json""",
    "import torch": "eindecomp import torch mymodel:make -o model.ein",
    "import jax": """\
eindecomp import jax mymodel:make -o model.ein
eindecomp import jax mymodel:loss --shape w=8,4 --shape x=float32[2,8]""",
    "import hf": "eindecomp import hf DIR --tokens 2048 -o model.ein",
}


def paragraphs(text: str | None) -> str:
    """A docstring as help: one line for each paragraph, as typer keeps its breaks or not."""
    parts = cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split("\n")) for part in parts)


def epilog(command: str) -> str:
    """The examples of a command, a line each with rich and without."""
    lines = EXAMPLES[command].replace("\n", "\n  ")
    return f"\b\nExamples:\n  {lines}"
