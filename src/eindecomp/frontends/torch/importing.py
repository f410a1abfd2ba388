"""`from_torch`: a module of PyTorch as a graph, through `torch.export`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree

from eindecomp.errors import GraphError, InputError
from eindecomp.frontends.draft import View
from eindecomp.frontends.input_names import free_name, input_name, key_of
from eindecomp.frontends.torch.exporting import exported_program, named_tensors
from eindecomp.frontends.torch.interpreter import Interpreter, Values, placeholders, walk
from eindecomp.frontends.torch.operators import (  # noqa: F401 - which registers operators
    aggregations,  # pyright: ignore[reportUnusedImport]
    contractions,  # pyright: ignore[reportUnusedImport]
    elementwise,  # pyright: ignore[reportUnusedImport]
    indexing,  # pyright: ignore[reportUnusedImport]
    shapes,  # pyright: ignore[reportUnusedImport]
)
from eindecomp.frontends.torch.registry import own_type
from eindecomp.frontends.trace import Trace
from eindecomp.graph.graph import Graph
from eindecomp.kernels.torch.tensors import as_array


def from_torch(
    module: nn.Module | Callable[..., Any],
    example_inputs: object = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph that a module computes for inputs of the shapes and types of the example.

    Parameters and buffers are inputs under their qualified names, shared ones once;
    `torch_weights` gives their values. Other inputs have the names of `forward`'s arguments, and
    outputs the keys of what it returns, or `out`. Numbers and truth values among the arguments
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


CONSTANTS: WeakKeyDictionary[nn.Module, dict[str, Tensor]] = WeakKeyDictionary()
"""The tensors that the code of an imported module holds, by the names of their inputs."""


def torch_weights(module: nn.Module, graph: Graph) -> dict[str, Any]:
    """The arrays for the inputs of an imported graph that are parameters and buffers of a module.

    They share the module's memory; a module that was imported without values, on the meta device,
    can be filled by another of the same kind.

    Args:
        module: What was imported, such as `model`.
        graph: What `ed.from_torch` made of it, such as `ed.from_torch(model, x)`.

    Raises:
        InputError: A parameter has no values: it is on the meta device.

    Examples:
        >>> import torch, eindecomp as ed
        >>> module = torch.nn.Linear(3, 2)
        >>> graph = ed.from_torch(module, torch.zeros(4, 3))
        >>> sorted(torch_weights(module, graph))
        ['bias', 'weight']
    """
    known = {input_name(name): tensor for name, tensor in named_tensors(module)}
    known |= CONSTANTS.get(module, {})
    arrays: dict[str, Any] = {}
    for vertex in graph.inputs:
        if vertex.name in known:
            tensor = known[vertex.name]
            if tensor.device.type == "meta":
                raise InputError(
                    f"{vertex.name!r} has no values: it is on the meta device; load the module "
                    "onto a device first"
                )
            arrays[vertex.name] = as_array(tensor.cpu())
    return arrays


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with what it was made of."""

    graph: Graph
    program: ExportedProgram
    views: Mapping[fx.Node, Any]
    """What each node of the program is in the graph: views of vertices, or numbers."""
    made: Mapping[fx.Node, tuple[str, ...]]
    """The vertices that were added for each node."""
    arguments: Arguments
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
        values, given = _inputs(trace, own, program)
        results = walk(program.graph, values, program.graph_module, interpreter.call)
    outputs = _outputs(program, results, {*given}, is_training=own.training)
    if (logits := outputs.get("logits")) is not None and logits.dims:
        trace.vote(logits, (*(None,) * (len(logits.dims) - 1), "v"))
    graph = trace.finish(outputs, keep=given)
    names = trace.final_names

    def final(view: View) -> View:
        return replace(view, vertex=names[view.vertex]) if view.number is None else view

    views = _pytree.tree_map_only(View, final, values)
    made = {n: tuple(names[each] for each in own) for n, own in interpreter.made.items()}
    example = _pytree.tree_map_only(Tensor, lambda x: x.to("meta"), (args, kwargs))
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


def _arguments(example: object, more: Mapping[str, Any] | None) -> Arguments:
    match example:
        case Tensor():
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


_GUESSES = {3: ("b", "s", None), 4: ("b", "c", "y", "x")}
"""What the dimensions of an input of so many may be: batch, then sequence, or an image."""


def _inputs(trace: Trace, module: nn.Module, program: ExportedProgram) -> tuple[Values, list[str]]:
    """The value of every placeholder, and the names of the inputs that are not weights."""
    tensors = dict(named_tensors(module))
    first = {id(tensor): name for name, tensor in named_tensors(module, each_once=True)}
    kinds = torch.export.graph_signature.InputKind
    nodes = {node.name: node for node in placeholders(program.graph)}
    values: Values = {}
    rebuilt = rebuilt_buffers(module)
    given: list[str] = []
    weights: dict[str, View] = {}
    for spec in program.graph_signature.input_specs:
        argument: Any = spec.arg
        node = nodes[argument.name]
        meta = argument.value if hasattr(argument, "value") else node.meta["val"]
        if not isinstance(meta, Tensor):
            values[node] = meta
            continue
        shape, dtype = tuple(meta.shape), own_type(meta.dtype)
        if any(not isinstance(size, int) for size in shape):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(f"input {node.name!r} has a shape that is not fixed: {shape}")
        if spec.kind is kinds.USER_INPUT:
            own = input_name(node.name)
            given.append(own)
            values[node] = trace.input(own, shape, dtype)
            names = _GUESSES.get(len(shape), ("b", *(None,) * (len(shape) - 1)))
            trace.vote(values[node], names[: len(shape)], 1)
            continue
        target = str(spec.target)
        tensor = tensors.get(target)
        is_weight = spec.kind is kinds.PARAMETER or bool(spec.persistent)
        known: Any = None if is_weight else program.constants.get(target, tensor)
        if known is not None and known.device.type == "meta":
            known = rebuilt.get(target, known)
        made = None
        if known is not None and known.device.type != "meta":
            made = trace.constant(as_array(known.cpu()))
        if made is None:
            own = input_name(first.get(id(tensor), target))
            if own not in weights:  # else it is shared
                weights[own] = trace.input(own, shape, dtype)
            made = weights[own]
            if tensor is None and known is not None:
                CONSTANTS.setdefault(module, {})[own] = known
        values[node] = made
    return values, given


def _outputs(
    program: ExportedProgram, results: Any, taken: set[str], *, is_training: bool
) -> dict[str, View]:
    """The outputs under their names."""
    kinds = torch.export.graph_signature.OutputKind
    views: list[Any] = []
    for spec, value in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.kind is kinds.USER_INPUT_MUTATION:
            raise GraphError(
                f"the module changes its argument {spec.target!r} in place, which a graph cannot; "
                "let it change a copy: x = x.clone()"
            )
        if spec.kind is not kinds.USER_OUTPUT:
            raise GraphError(
                f"the module changes {spec.target!r} while it runs, which a graph cannot"
                + ("; put it in evaluation mode first: module.eval()" if is_training else "")
            )
        views.append(value)
    outputs: dict[str, View] = {}
    for name, view in zip(_output_names(program, len(views)), views, strict=True):
        if isinstance(view, View):  # else it is a constant that the module returns
            outputs[free_name(input_name(name), {*outputs, *taken})] = view
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
    names = ["_".join(key_of(key) for key in path) for path, _ in paths]
    return ["out" if not name else f"out_{name}" if name[0].isdigit() else name for name in names]


def rebuilt_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Buffers on the meta device that are no part of a checkpoint, with their values.

    Parts without parameters that are made from a configuration alone, as the rotary embeddings of
    Hugging Face's models are, are made once more, on the CPU.
    """
    buffers: dict[str, Tensor] = {}
    parts: list[tuple[str, Any]] = [*module.named_modules()]
    for path, part in parts:
        own: dict[str, Tensor] = dict(part.named_buffers(recurse=False))
        on_meta = [name for name, buffer in own.items() if buffer.device.type == "meta"]
        config: Any = getattr(part, "config", None)
        if config is None or not on_meta or [*part.parameters()]:
            continue
        try:
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                again: dict[str, Tensor] = dict(type(part)(config).named_buffers(recurse=False))
        except Exception:  # noqa: S112 - it takes more than a configuration
            continue
        for name in on_meta:
            buffer = again.get(name)
            if buffer is not None and buffer.shape == own[name].shape:
                buffers[f"{path}.{name}" if path else name] = buffer.to(own[name].dtype)
    return buffers
