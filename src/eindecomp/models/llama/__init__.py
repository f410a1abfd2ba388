"""LLaMA: its graphs, its weights from Hugging Face folders, reading prompts and generating text."""

from eindecomp.models.llama.config import CONFIGS, Config
from eindecomp.models.llama.graph import prefill_graph, step_graph, store_graph
from eindecomp.models.llama.model import DEFAULT_STRATEGY, Counts, Llama
from eindecomp.models.llama.on_devices import Cache
from eindecomp.models.llama.read_folder import RopeScaling
from eindecomp.models.llama.tokens import GeneratedToken, Sampling

__all__ = [
    "CONFIGS", "DEFAULT_STRATEGY", "Cache", "Config", "Counts", "GeneratedToken", "Llama",
    "RopeScaling", "Sampling", "prefill_graph", "step_graph", "store_graph",
]  # fmt: skip
