"""The paper's experiments as graphs: a matrix chain, a large classifier, LLaMA."""

from eindecomp.models import llama
from eindecomp.models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from eindecomp.models.fit import Batches, Fitted, NotSavedError, fit
from eindecomp.models.initial import initial
from eindecomp.models.optimizers import adam, adamw, momentum, sgd, training_step
from eindecomp.models.paper_graphs import Synthetic, chain, ffnn

__all__ = [
    "Batches", "Checkpoint", "Fitted", "NotSavedError", "Synthetic", "adam", "adamw", "chain",
    "ffnn", "fit", "initial", "llama", "load_checkpoint", "momentum", "save_checkpoint", "sgd",
    "training_step",
]  # fmt: skip
