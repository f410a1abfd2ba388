"""Walking through an exported graph: every node becomes a view, or several."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch.utils import _pytree

from eindecomp.errors import EinDecompError, GraphError
from eindecomp.frontends.input_names import input_name
from eindecomp.frontends.torch import registry
from eindecomp.frontends.torch.exporting import changes, decomposed, module_path, place_of
from eindecomp.frontends.trace import Trace
from eindecomp.kernels.torch.tensors import as_array

_CHECKS = (
    "aten._assert_tensor_metadata", "aten._assert_async", "aten._assert_scalar",
    "aten.sym_constrain_range", "aten.sym_constrain_range_for_size",
)  # fmt: skip
"""Operators without a result."""
_WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
"""Operators that run a graph of their own."""


Values = dict[fx.Node, Any]


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    """The inputs of a graph of torch."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def walk(graph: fx.Graph, values: Values, own: Any, call: Callable[[fx.Node, Values], Any]) -> Any:
    """What a graph returns, with `call` giving the value of each operator.

    `values` has those of the placeholders, and gets those of all other nodes. Graphs that switch
    gradients or types are part of the one that they are in.
    """
    for node in graph.nodes:
        match node.op:
            case "placeholder":
                pass
            case "get_attr":
                values[node] = python_operator.attrgetter(str(node.target))(own)
            case "call_function" if str(node.target).rpartition(".")[0] in _CHECKS:
                values[node] = None
            case "call_function" if str(node.target) in _WRAPPERS:
                args = cast("tuple[Any, ...]", fx.map_arg(node.args, values.__getitem__))
                at = next(k for k, arg in enumerate(args) if isinstance(arg, fx.GraphModule))
                inner = args[at]
                values.update(zip(placeholders(inner.graph), args[at + 1 :], strict=True))
                values[node] = walk(inner.graph, values, inner, call)
            case "call_function":
                values[node] = call(node, values)
            case "output":
                return fx.map_arg(node.args[0], values.__getitem__)
            case _:
                raise GraphError(f"a node {node.op} of torch.export is not imported: {node}")
    return None


class Interpreter:
    """Imports graphs of torch into a trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.made: dict[fx.Node, tuple[str, ...]] = {}
        """The vertices that were added for each operator of the graph itself."""
        self._within: fx.Node | None = None
        """The operator that is imported as others."""

    def call(self, node: fx.Node, values: Values) -> Any:
        """What comes of an operator."""
        before, outer = self.trace.count, self._within
        args, kwargs = cast(
            "Any", fx.map_arg((node.args, node.kwargs), lambda each: self._known(values[each]))
        )
        target: Any = node.target
        if target is python_operator.getitem:
            result = _result(node, args[0], args[1])
        elif isinstance(target, type) and issubclass(target, tuple):  # several results, named
            result = args[0] if len(args) == 1 else args
        elif not isinstance(target, torch._ops.OpOverload):  # pyright: ignore[reportPrivateUsage]
            raise GraphError(f"{target} is not imported\n{place_of(node)}")
        else:
            self._within = outer or node
            try:
                result = self._operate(node, target, args, kwargs)
            except EinDecompError as error:
                if outer is None:
                    [message] = error.args
                    raise type(error)(f"{message}\n{place_of(node)}") from error
                raise
            finally:
                self._within = outer
        if outer is None:
            self.made[node] = self.trace.since(before)
        if changes(node):
            values[_changed(node)] = result
        return result

    def _known(self, value: Any) -> Any:
        """A value as operators take it: tensors that a decomposition holds become formulas."""
        if not isinstance(value, torch.Tensor):
            return value
        made = self.trace.constant(as_array(value.cpu()))
        if made is None:
            raise GraphError(f"a constant tensor of shape {tuple(value.shape)} is not imported")
        return made

    def _operate(self, node: fx.Node, target: Any, args: Any, kwargs: Any) -> Any:
        name = str(target)
        if self._within is node:
            path, short = module_path(node), name.split(".")[1].strip("_")
            self.trace.begin(input_name(f"{path}.{short}" if path else short))
        function = registry.find_operator(name.replace("_.", ".") if changes(node) else name)
        if function is None:
            parts = decomposed(node)
            if parts is None:
                raise self._unknown(name)
            graph, leaves = parts
            given = [*_leaves((args, kwargs))]
            pairs = zip(placeholders(graph.graph), (given[k] for k in leaves), strict=True)
            return walk(graph.graph, dict(pairs), graph, self.call)
        op = registry.Operation(name, self.trace, _metas(node))
        return registry.call_operator(function, op, target._schema, args, kwargs)

    def _unknown(self, name: str) -> GraphError:
        """The error that names an operator, and what torch makes it of that is not known either."""
        asked = name if self._within is None else str(self._within.target)
        through = "" if asked == name else f": it is made of {name}, which is not"
        return GraphError(
            f"operator {asked} is not imported{through}; register_torch_operator({asked!r}, "
            "function) of eindecomp.frontends.torch.registry adds it"
        )


def _result(node: fx.Node, results: Sequence[Any], at: int) -> Any:
    """One of several results of an operator; those that nobody reads need not be imported."""
    if at < len(results) or not node.users:
        return results[at] if at < len(results) else None
    source: Any = node.args[0]
    raise GraphError(f"result {at} of {source.target} is not imported\n{place_of(source)}")


def _changed(node: fx.Node) -> fx.Node:
    """The node whose tensor a node changes in place, which no other must see."""
    base = node.args[0]
    if isinstance(base, fx.Node) and not any(map(_is_view, (base, *base.users))):
        return base
    raise GraphError(f"{node.target} changes a part of a tensor in place, which is not imported")


def _is_view(node: fx.Node) -> bool:
    returns: Any = getattr(getattr(node.target, "_schema", None), "returns", ())
    return not changes(node) and any(each.alias_info is not None for each in returns)


def _metas(node: fx.Node) -> tuple[registry.Meta, ...]:
    """The shape and type of each tensor that a node returns."""
    tensors = [v for v in _leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
    if any(not isinstance(size, int) for size in sizes):
        hint = "; give it an output_size" if "repeat_interleave" in str(node.target) else ""
        raise GraphError(f"the shape of the result of {node.target} depends on the data{hint}")
    return tuple(registry.Meta(tuple(t.shape), registry.own_type(t.dtype)) for t in tensors)


def _leaves(value: Any) -> Iterable[Any]:
    return _pytree.tree_leaves(value, is_leaf=lambda x: x is None)
