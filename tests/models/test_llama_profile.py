"""`benchmarks/llama.py --profile` says where the time of a run goes."""

from __future__ import annotations

from collections import defaultdict
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from eindecomp.engines.result import KernelCompiled, TaskFinished
from eindecomp.models.llama import Config

PATH = Path(__file__).parents[2] / "benchmarks" / "llama.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = spec_from_file_location("benchmark_llama", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_event_is_counted(benchmark):
    spent = defaultdict(float)
    for event in (
        TaskFinished("WQ12", "compute", 0, 0, 1.0, 3.0),
        TaskFinished("WQ3", "compute", 0, 0, 3.0, 4.0),
        KernelCompiled("loops", 0, 0, 0.5, 1.0),
    ):
        benchmark.count(spent, event)
    assert spent == {"WQ compute": 3.0, "compiling": 0.5}


@pytest.mark.parametrize(("kind", "tokens"), [("prefill", 8), ("step", 64)])
def test_a_model_is_profiled(benchmark, capsys, kind, tokens):
    sizes = {"vocabulary": 16, "width": 8, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 4}
    benchmark.profile(Config(**sizes, hidden=8), kind, tokens)
    said = capsys.readouterr().out
    assert said.startswith(f"{kind} of {tokens}: ")
    assert "logits compute" in said
