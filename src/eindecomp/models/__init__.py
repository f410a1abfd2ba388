"""The paper's experiments as graphs: a matrix chain, a large classifier, LLaMA."""

from eindecomp.models.chain import chain
from eindecomp.models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from eindecomp.models.ffnn import ffnn, initial
from eindecomp.models.fit import Batches, Fitted, fit
from eindecomp.models.optimizers import adam, adamw, momentum, sgd, training_step

__all__ = [
    "Batches",
    "Checkpoint",
    "Fitted",
    "adam",
    "adamw",
    "chain",
    "ffnn",
    "fit",
    "initial",
    "load_checkpoint",
    "momentum",
    "save_checkpoint",
    "sgd",
    "training_step",
]
