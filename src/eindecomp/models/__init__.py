"""The paper's experiments as graphs: a matrix chain, a large classifier, LLaMA."""

from eindecomp.models import llama
from eindecomp.models.chain import chain

__all__ = ["chain", "llama"]
