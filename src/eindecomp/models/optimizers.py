"""Optimisers as vertices: an update of parameters, added to any graph that has their gradients.

An update reads the run-time scalars `lr`, the learning rate, and where it needs one `step`, which
counts from 1. For a parameter `W` it adds the output `new_W`; the optimiser's own state is an input
such as `W_mean` with an output `new_W_mean`, all zeros before the first step. `new_X` of one step
is `X` of the next: the graph ties them, which is all that a training loop and the planner need to
know. The numbers are those of `torch.optim`, up to rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from eindecomp.errors import InputError, suggest
from eindecomp.graph.grad import grad
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.rewrites.rebuild import remove_dead

NEW = "new_"
_WORD = re.compile(r"[a-z]\w*")
Optimizer = Callable[[Graph, Sequence[str], Sequence[str]], None]
"""Adds to a graph the updates of parameters by their gradients, and ties each to its next value.

Both are names, in one order.
"""


def sgd(
    graph: Graph, parameters: Sequence[str], gradients: Sequence[str], *, weight_decay: float = 0.0
) -> None:
    """Plain gradient descent: W - lr · g.

    Args:
        graph: What the updates are added to, such as `ed.grad(graph, "loss", wrt=["W"])`.
        parameters: The inputs to update, such as `["W"]`.
        gradients: Theirs, in the same order, such as `["grad_W"]`.
        weight_decay: How much of the parameter is added to its gradient, such as `0.01`.

    Examples:
        >>> graph = Graph()
        >>> _ = graph.input("W", {"i": 3}), graph.input("g", {"i": 3})
        >>> sgd(graph, ["W"], ["g"])
        >>> print(graph)
        scalar lr float64
        input W[i: 3]
        input g[i: 3]
        new_W[i] <- W[i] - lr * g[i]
        output new_W
        tie W <- new_W
    """
    _add(graph, parameters, gradients, {"w": f"w - lr * {_slope(weight_decay)}"})


def momentum(
    graph: Graph,
    parameters: Sequence[str],
    gradients: Sequence[str],
    *,
    factor: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Gradient descent along a running sum of gradients, which decays by `factor` a step.

    Args:
        graph: What the updates are added to, such as `ed.grad(graph, "loss", wrt=["W"])`.
        parameters: The inputs to update, such as `["W"]`.
        gradients: Theirs, in the same order, such as `["grad_W"]`.
        factor: What stays of the sum after a step, such as `0.9`.
        nesterov: Whether the gradient is taken a step ahead, such as `True`.
        weight_decay: How much of the parameter is added to its gradient, such as `0.01`.

    Examples:
        >>> graph = Graph()
        >>> _ = graph.input("W", {"i": 3}), graph.input("g", {"i": 3})
        >>> momentum(graph, ["W"], ["g"])
        >>> print(graph["new_W_sum"], graph.ties)
        new_W_sum[i] {'W_sum': 'new_W_sum', 'W': 'new_W'}
    """
    keep, slope = _number("factor", factor, 1), _slope(weight_decay)
    ahead = f"({slope} + {keep} * new_sum)" if nesterov else "new_sum"
    _add(graph, parameters, gradients, {"sum": f"{keep} * sum + {slope}", "w": f"w - lr * {ahead}"})


def adam(
    graph: Graph,
    parameters: Sequence[str],
    gradients: Sequence[str],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> None:
    """Adam: running means of the gradient and its square; decay is added to the gradient.

    Args:
        graph: What the updates are added to, such as `ed.grad(graph, "loss", wrt=["W"])`.
        parameters: The inputs to update, such as `["W"]`.
        gradients: Theirs, in the same order, such as `["grad_W"]`.
        betas: What stays of both means after a step, such as `(0.9, 0.999)`.
        eps: Is added to the root of the mean square, such as `1e-8`.
        weight_decay: How much of the parameter is added to its gradient, such as `0.01`.

    Examples:
        >>> graph = Graph()
        >>> _ = graph.input("W", {"i": 3}), graph.input("g", {"i": 3})
        >>> adam(graph, ["W"], ["g"])
        >>> sorted(graph.ties)
        ['W', 'W_mean', 'W_square']
    """
    _add(graph, parameters, gradients, _adam(betas, eps, "w", _slope(weight_decay)), ("lr", "step"))


def adamw(
    graph: Graph,
    parameters: Sequence[str],
    gradients: Sequence[str],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    """Adam with weight decay applied to the weights directly, not through their gradients.

    Args:
        graph: What the updates are added to, such as `ed.grad(graph, "loss", wrt=["W"])`.
        parameters: The inputs to update, such as `["W"]`.
        gradients: Theirs, in the same order, such as `["grad_W"]`.
        betas: What stays of both means after a step, such as `(0.9, 0.999)`.
        eps: Is added to the root of the mean square, such as `1e-8`.
        weight_decay: How much of the parameter is taken off, times the learning rate, such as
            `0.01`.

    Examples:
        >>> graph = Graph()
        >>> _ = graph.input("W", {"i": 3}), graph.input("g", {"i": 3})
        >>> adamw(graph, ["W"], ["g"])
        >>> sorted(graph.ties)
        ['W', 'W_mean', 'W_square']
    """
    keep = f"w * (1 - lr * {_number('weight_decay', weight_decay)})" if weight_decay else "w"
    _add(graph, parameters, gradients, _adam(betas, eps, keep, "g"), ("lr", "step"))


OPTIMIZERS: dict[str, Optimizer] = {"sgd": sgd, "momentum": momentum, "adam": adam, "adamw": adamw}


def training_step(
    graph: Graph, loss: str, parameters: Sequence[str], optimizer: str | Optimizer = "sgd"
) -> Graph:
    """The graph of one step of training: the loss, and parameters updated by its gradients.

    The optimiser ties each input that it updates to its next value.

    Args:
        graph: What computes the loss, such as `ed.parse(text)`; it stays as it is.
        loss: The output that is the loss, such as `"loss"`.
        parameters: The inputs to update, such as `["W"]`.
        optimizer: A name, such as `"adam"`, or a function such as `partial(adam, eps=1e-6)`.

    Examples:
        >>> from eindecomp.graph.text.elaborate import parse
        >>> graph = parse("input X[i: 3], W[i]\\nloss[] <- sum X[i] * W[i]\\noutput loss")
        >>> training_step(graph, "loss", ["W"]).ties
        {'W': 'new_W'}
    """
    if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
        raise InputError(f"no optimiser {optimizer!r}{suggest(optimizer, OPTIMIZERS)}")
    update = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    grown = grad(graph, loss, wrt=parameters)
    gradients = [vertex.name for vertex in grown.outputs[len(graph.outputs) :]]
    kept = list(dict.fromkeys([*(vertex.name for vertex in graph.outputs), loss]))
    step = Graph.of(grown.vertices.values(), kept, grown.scalars, ties=grown.ties)
    update(step, parameters, gradients)
    return remove_dead(step)


def _adam(betas: tuple[float, float], eps: float, keep: str, slope: str) -> dict[str, str]:
    """Adam's updates, given the decayed weight and the slope that it follows."""
    first, second = (_number("a beta", beta, 1) for beta in betas)
    # Grouped as in torch: the corrections are scalars, computed once outside the loops.
    step = f"(lr / (1 - {first}**step)) * new_mean"
    scale = f"sqrt(new_square) / sqrt(1 - {second}**step) + {_number('eps', eps)}"
    return {
        "mean": f"mean + (1 - {first}) * ({slope} - mean)",
        "square": f"{second} * square + (1 - {second}) * {slope} * {slope}",
        "w": f"{keep} - {step} / ({scale})",
    }


def _add(
    graph: Graph,
    parameters: Sequence[str],
    gradients: Sequence[str],
    updates: Mapping[str, str],
    scalars: Sequence[str] = ("lr",),
) -> None:
    """Add the next values of parameters and of their state, as outputs that are tied to them.

    In `updates`, `w` is a parameter and `g` its gradient; any other name is state, and
    with `new_` before it the next value of that.
    """
    if len(parameters) != len(gradients):
        raise InputError(f"{len(parameters)} parameters, but {len(gradients)} gradients")
    for name in scalars:
        if name not in graph.scalars:
            # The step is a float64 too: an integer would be combined with floats as a float32.
            graph.scalar(name, "float64")
    for parameter, gradient in zip(parameters, gradients, strict=True):
        vertex, by = graph[parameter], graph[gradient]
        if not isinstance(vertex.op, Input):
            raise InputError(f"{vertex} is computed: only inputs are parameters")
        if vertex.shape != by.shape:
            raise InputError(f"{vertex} has shape {vertex.shape}, its gradient {by.shape}")
        names = {"w": parameter, "g": gradient}
        for word in updates:
            if word != "w":
                names[word] = graph.input(f"{parameter}_{word}", vertex.sizes, vertex.dtype).name
            names[NEW + word] = NEW + names[word]
        for word, formula in updates.items():
            _update(graph, names, word, formula)


def _update(graph: Graph, names: Mapping[str, str], word: str, formula: str) -> None:
    """Add the next value of an input as an element-wise vertex."""
    read = list(dict.fromkeys(each for each in _WORD.findall(formula) if each in names))
    operands = dict(zip(read, "xyz", strict=False))
    join = _WORD.sub(lambda match: operands.get(match[0], match[0]), formula)
    labels = " ".join(graph[names[word]].labels)
    spec = f"{', '.join([labels] * len(read))} -> {labels}"
    tensors = [names[each] for each in read]
    graph.output(graph.einsum(spec, *tensors, join=join, name=names[NEW + word]))
    graph.tie(names[word], names[NEW + word])


def _slope(weight_decay: float) -> str:
    """The gradient plus weight decay."""
    return f"(g + {_number('weight_decay', weight_decay)} * w)" if weight_decay else "g"


def _number(what: str, value: float, limit: float = float("inf")) -> str:
    if not 0 <= value < limit:
        raise InputError(f"{what} must be at least 0 and less than {limit:g}, not {value}")
    return repr(float(value))
