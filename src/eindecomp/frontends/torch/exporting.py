"""`torch.export` of a module, under settings with which it succeeds."""

from __future__ import annotations

import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.modules import transformer
from torch.utils import _pytree

from eindecomp.errors import GraphError


def exported_program(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ExportedProgram:
    """The graph of the operators of a module that matter, none of which changes a tensor."""
    if any(tensor.device.type == "meta" for _, tensor in named_tensors(module)):
        args, kwargs = _pytree.tree_map_only(Tensor, lambda x: x.to("meta"), (args, kwargs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with set_otherwise(_settings(module)), _without_dumps():
            try:
                program = torch.export.export(module, args, kwargs, strict=False)
            except Exception as error:
                raise _refusal(module, error) from error
        if any(map(changes, program.graph.nodes)):
            program = program.run_decompositions({})
    parts: list[nn.Module] = [*program.graph_module.modules()]
    for part in parts:
        if isinstance(part, fx.GraphModule):  # what nothing reads need be neither imported nor run
            part.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
    return program


def named_tensors(module: nn.Module, *, each_once: bool = False) -> Iterator[tuple[str, Tensor]]:
    """All parameters and buffers under all their names, or each under its first."""
    yield from module.named_parameters(remove_duplicate=each_once)
    yield from module.named_buffers(remove_duplicate=each_once)


@contextmanager
def set_otherwise(settings: Iterable[tuple[Any, str, Any]]) -> Generator[None]:
    """Give attributes of objects other values for a while."""
    changed = [(owner, name, getattr(owner, name), new) for owner, name, new in settings]
    try:
        for owner, name, _, new in changed:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old, _ in reversed(changed):
            setattr(owner, name, old)


def _settings(module: nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """Objects, attributes and the values with which a module can be exported.

    Models of Hugging Face return no cache unless the call asks for one, and look their experts'
    weights up row by row, rather than sort rows into groups whose sizes depend on data.
    `nn.Transformer` takes a mask as it is, rather than compare it with a causal one.
    """
    parts: list[Any] = [*module.modules()]
    configs = {id(part.config): part.config for part in parts if getattr(part, "config", None)}
    for config in configs.values():
        if getattr(config, "use_cache", False) is True:
            yield config, "use_cache", False
        if hasattr(config, "_experts_implementation_internal"):
            yield config, "_experts_implementation_internal", "batched_mm"
    yield transformer, "_detect_is_causal_mask", _is_called_causal
    yield logging.getLogger("torch.fx.experimental.symbolic_shapes"), "disabled", True


def _is_called_causal(_mask: object, is_causal: bool | None = None, _size: object = None) -> bool:
    return is_causal is True


@contextmanager
def _without_dumps() -> Generator[None]:
    """Hide the graph that torch prints before an error, and nothing else."""
    with redirect_stderr(io.StringIO()) as printed:
        yield
    sys.stderr.write(printed.getvalue())


def _refusal(module: nn.Module, error: Exception) -> GraphError:
    """The error that says why a module cannot be exported, and where, in a few lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = lines[0] if lines else type(error).__name__
    if isinstance(error, GuardOnDataDependentSymNode):
        why = "what it does depends on the values of a tensor"
    elif "Cache" in why:
        why = "it returns a cache, which is no tensor; pass use_cache=False"
    own = [each for each in module_lines(module, error) if not is_of_torch(each[1])]
    if own:  # the innermost line of a module, not of torch, that the error was raised from
        path, file, line = own[-1]
        why += f"{f' in module {path}' if path else ''} (at {file}:{line})"
    return GraphError(f"torch.export cannot export the module: {why}")


def module_lines(module: nn.Module, error: BaseException) -> list[tuple[str, str, int]]:
    """The lines of a module's own code that an error passed through: part, file and number."""
    parts: list[tuple[str, nn.Module]] = [*module.named_modules()]
    paths = {id(part): path for path, part in parts}
    frames = [
        (paths.get(id(frame.f_locals.get("self"))), frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
    ]
    return [(path, file, line) for path, file, line in frames if path is not None]


_LINE = re.compile(r'File "([^"]+)", line (\d+), in (.+)\n?(.*)')
_TORCH = str(Path(torch.__file__).parent)


def is_of_torch(file: str) -> bool:
    """Whether a file belongs to torch rather than to the user."""
    return file.startswith(_TORCH)


def module_path(node: fx.Node) -> str:
    """The qualified name of the module that a node belongs to."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed([*stack.values()]) if path), "")


def place_of(node: fx.Node) -> str:
    """The innermost line of the user's code that made a node, and its module."""
    every = _LINE.findall(node.meta.get("stack_trace") or "")
    lines = [line for line in every if not is_of_torch(line[0])] or every
    where = "in the exported graph"
    if lines:
        file, number, function, code = lines[-1]
        where = f"in {file}, line {number}, in {function}: {code.strip()}"
    path = module_path(node)
    return f"  {where}" + (f"\n  in module {path}" if path else "")


def decomposed(node: fx.Node) -> tuple[fx.GraphModule, list[int]] | None:
    """A graph that computes a node, and which of its flat arguments the placeholders stand for.

    None if torch knows no simpler operators for it.
    """
    rule = _rule(node.target)
    if rule is None:
        return None
    from torch.fx.experimental.proxy_tensor import make_fx

    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    flat, spec = _pytree.tree_flatten((args, kwargs), is_leaf=lambda x: x is None)
    tensors = [k for k, value in enumerate(flat) if isinstance(value, Tensor)]
    modes = [mode for k in tensors if (mode := getattr(flat[k], "fake_mode", None)) is not None]

    def run(*given: Tensor) -> Any:
        own = list(flat)
        for k, tensor in zip(tensors, given, strict=True):
            own[k] = tensor
        args, kwargs = _pytree.tree_unflatten(own, spec)
        return rule(*args, **kwargs)

    given = [flat[k] for k in tensors]
    mode = modes[0] if modes else torch.no_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Kernels of mkldnn would stand for whole layers.
        with mode, torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
            try:
                made = make_fx(run)(*given)
            except (RuntimeError, ValueError, TypeError):  # rules of torch that do not go through
                return None
    if any(each.target is node.target for each in made.graph.nodes):
        return None
    return made, tensors


def changes(node: fx.Node) -> bool:
    """Whether a node changes a tensor in place."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and str(node.target) != "aten.detach_.default"


def _rule(target: Any) -> Callable[..., Any] | None:
    """What defines an operator by others."""
    from torch import _decomp

    table: Any = _decomp.decomposition_table  # pyright: ignore[reportUnknownVariableType]
    if target in table:
        return table[target]
    if not isinstance(target, torch._ops.OpOverload):  # pyright: ignore[reportPrivateUsage]
        return None
    composite = torch._C.DispatchKey.CompositeImplicitAutograd  # pyright: ignore
    has = torch._C._dispatch_has_kernel_for_dispatch_key  # pyright: ignore
    known = composite in target.py_kernels or has(target.name(), composite)
    return target.decompose if known else None
