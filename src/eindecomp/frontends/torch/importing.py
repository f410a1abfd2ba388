"""`from_torch`: a module of PyTorch as a graph, through `torch.export`."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.utils import _pytree

from eindecomp.errors import GraphError, InputError
from eindecomp.frontends.input_names import input_name, key_of
from eindecomp.frontends.torch import operators  # noqa: F401 # pyright: ignore[reportUnusedImport] - which registers them
from eindecomp.frontends.torch.exporting import exported_program
from eindecomp.frontends.torch.interpreter import Interpreter
from eindecomp.frontends.torch.registry import own_type
from eindecomp.frontends.torch.weights import (
    CONSTANTS,
    first_names,
    named_tensors,
    rebuilt_buffers,
    to_numpy,
)
from eindecomp.frontends.trace import Trace
from eindecomp.frontends.views import View

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from torch.export import ExportedProgram

    from eindecomp.graph.graph import Graph


def from_torch(
    module: nn.Module | Callable[..., Any],
    example_inputs: object = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph that a module computes for inputs of the shapes and types of the example.

    Parameters and buffers are inputs under their qualified names, shared ones once;
    `torch_weights` gives their values. Other inputs are called as the arguments of `forward`, and
    outputs as the keys of what it returns, or `out`. Numbers and truth values among the arguments
    are fixed.

    Args:
        module: A module or a function, such as `torch.nn.Linear(3, 8)`; one on the meta device,
            which takes no memory, will do.
        example_inputs: A tensor, a tuple of arguments or a dict of keyword arguments, such as
            `torch.zeros(4, 3)`; tensors on the meta device will do.
        example_kwargs: Keyword arguments, such as `{"mask": mask}`.

    Raises:
        GraphError: It does what no graph can, such as an operator that is not supported.

    Examples:
        >>> import torch, eindecomp as ed
        >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU())
        >>> print(ed.from_torch(module, torch.zeros(4, 3)))
        input _0.weight[f: 8, n: 3]
        input _0.bias[f: 8]
        input _input[b: 4, n: 3]
        _0.linear[b,f] <- sum _input[b,n] * _0.weight[f,n]
        _0.linear_1[b,f] <- _0.linear[b,f] + _0.bias[f]
        out[b,f] <- relu(_0.linear_1[b,f])
        output out
    """
    return import_module(module, example_inputs, example_kwargs).graph


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with what it was made of."""

    graph: Graph
    program: ExportedProgram
    views: Mapping[fx.Node, Any]
    """What each node of the program is in the graph: views of vertices, or numbers."""
    made: Mapping[fx.Node, tuple[str, ...]]
    """The vertices that were added for each node."""
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    """Arguments like those of the example, with tensors on the meta device."""


def import_module(
    module: nn.Module | Callable[..., Any],
    example_inputs: object = (),
    example_kwargs: Mapping[str, Any] | None = None,
) -> Imported:
    """The graph of a module, and which of its vertices came of which operator."""
    own = module if isinstance(module, nn.Module) else _Function(module)
    args, kwargs = _arguments(example_inputs, example_kwargs)
    trace = Trace()
    interpreter = Interpreter(trace)
    with _without_collection():
        program = exported_program(own, args, kwargs)
        inputs, given = _inputs(trace, own, program)
        found = interpreter.run(program.graph, inputs, program.graph_module)
    outputs = _outputs(program, found, {*given}, is_training=own.training)
    if (logits := outputs.get("logits")) is not None and logits.dims:
        trace.vote(logits, (*(None,) * (len(logits.dims) - 1), "v"))
    graph = trace.finish(outputs, keep=given)
    names = trace.final_names

    def final(view: View) -> View:
        return replace(view, vertex=names[view.vertex]) if view.number is None else view

    views = _pytree.tree_map_only(View, final, interpreter.values)
    made = {n: tuple(names[each] for each in own) for n, own in interpreter.made.items()}
    example = _pytree.tree_map_only(torch.Tensor, lambda x: x.to("meta"), (args, kwargs))
    return Imported(graph, program, views, made, example)


@contextmanager
def _without_collection() -> Generator[None]:
    """Collect no garbage for a while: exports make many small objects, nearly all of which stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        if isinstance(function, FunctionType):
            self.forward = function  # so that inputs are called as its parameters

    def forward(self, *args: Any) -> Any:
        """What the function returns."""
        return self._function(*args)


def _arguments(
    example: object, more: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match example:
        case torch.Tensor():
            return (example,), dict(more or {})
        case Mapping():
            return (), {**example, **(more or {})}  # pyright: ignore[reportUnknownVariableType]
        case tuple() | list():
            return tuple(example), dict(more or {})  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            raise InputError(
                "the example inputs are a tensor, a tuple of arguments or a dict of keyword "
                f"arguments, not a {type(example).__name__}"
            )


def _inputs(
    trace: Trace, module: nn.Module, program: ExportedProgram
) -> tuple[dict[str, Any], list[str]]:
    """The value of every placeholder, and the names of the inputs that are not weights."""
    first, tensors = first_names(module), dict(named_tensors(module))
    kinds = torch.export.graph_signature.InputKind
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    found: dict[str, Any] = {}
    rebuilt = rebuilt_buffers(module)
    given: list[str] = []
    weights: dict[str, View] = {}
    for spec in program.graph_signature.input_specs:
        argument: Any = spec.arg
        name: str = argument.name
        if hasattr(argument, "value"):
            found[name] = argument.value
            continue
        meta = placeholders[name].meta["val"]
        if not isinstance(meta, torch.Tensor):
            found[name] = meta
            continue
        shape, dtype = _static(name, meta.shape), own_type(meta.dtype)
        if spec.kind is kinds.USER_INPUT:
            own = input_name(name)
            given.append(own)
            found[name] = trace.input(own, shape, dtype)
            _vote(trace, found[name])
            continue
        target = str(spec.target)
        tensor = tensors.get(target)
        is_weight = spec.kind is kinds.PARAMETER or bool(spec.persistent)
        known: Any = None if is_weight else program.constants.get(target, tensor)
        if known is not None and _is_meta(known):
            known = rebuilt.get(target, known)
        found[name] = None if known is None or _is_meta(known) else trace.constant(to_numpy(known))
        if found[name] is None:
            own = input_name(first.get(id(tensor), target))
            if own not in weights:  # else it is shared
                weights[own] = trace.input(own, shape, dtype)
            found[name] = weights[own]
            if tensor is None and known is not None:
                CONSTANTS.setdefault(module, {})[own] = known
    return found, given


def _is_meta(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "meta"


def _static(name: str, shape: Sequence[Any]) -> tuple[int, ...]:
    if any(not isinstance(size, int) for size in shape):
        raise GraphError(f"input {name!r} has a shape that is not fixed: {tuple(shape)}")
    return tuple(shape)


def _vote(trace: Trace, array: View) -> None:
    """Guess what the dimensions of an input are: batch, then sequence, or an image."""
    match len(array.shape):
        case 4:
            trace.vote(array, ("b", "c", "y", "x"), 1)
        case 3:
            trace.vote(array, ("b", "s", None), 1)
        case n if n:
            trace.vote(array, ("b", *(None,) * (n - 1)), 1)
        case _:
            pass


def _outputs(
    program: ExportedProgram, found: Any, taken: set[str], *, is_training: bool
) -> dict[str, View]:
    """The outputs under their names."""
    kinds = torch.export.graph_signature.OutputKind
    views: list[Any] = []
    for spec, value in zip(program.graph_signature.output_specs, found, strict=True):
        if spec.kind is kinds.USER_OUTPUT:
            views.append(value)
        elif spec.kind is kinds.USER_INPUT_MUTATION:
            raise GraphError(
                f"the module changes its argument {spec.target!r} in place, which a graph cannot; "
                "let it change a copy: x = x.clone()"
            )
        else:
            raise GraphError(
                f"the module changes {spec.target!r} while it runs, which a graph cannot"
                + ("; put it in evaluation mode first: module.eval()" if is_training else "")
            )
    names = _output_names(program, len(views))
    outputs: dict[str, View] = {}
    for name, view in zip(names, views, strict=True):
        if not isinstance(view, View):
            continue  # a constant that the module returns
        name = input_name(name)
        while name in outputs or name in taken:
            name += "_"
        outputs[name] = view
    if not outputs:
        raise GraphError("the module returns no tensor")
    return outputs


def _output_names(program: ExportedProgram, count: int) -> list[str]:
    """The keys of what a module returns, or `out`, with numbers where there are several."""
    signature = program.module_call_graph[0].signature
    if signature is None:
        return [f"out_{k}" for k in range(count)]
    paths: Any
    tree = _pytree.tree_unflatten([*range(count)], signature.out_spec)
    paths, _ = _pytree.tree_flatten_with_path(tree)
    found = ["_".join(key_of(key) for key in path) for path, _ in paths]
    return ["out" if not name else f"out_{name}" if name[0].isdigit() else name for name in found]
