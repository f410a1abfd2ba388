"""`plan` and `cost`: the cheapest plan for a graph, and what a given decomposition costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil, prod
from pathlib import Path

from eindecomp.above import from_above
from eindecomp.errors import PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.reduce_types import reduce_types, with_reduce_types
from eindecomp.graph.rewrites.recompute import (
    AUTO,
    Recompute,
    recompute_form,
    recomputed,
)
from eindecomp.graph.rewrites.rewrite import rewrite as rewritten
from eindecomp.layout.mesh import BALANCED, WHOLE
from eindecomp.layout.view import planned_views
from eindecomp.planner import budgets
from eindecomp.planner.contraction_order import minimize_with_order
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.planner.costs.cost import Cost, decided_cost, paper_cost
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.price import Objective, price_of
from eindecomp.planner.microbatches import checked_microbatches, for_copies, micro_batched
from eindecomp.planner.minimize_bound import minimize_bound
from eindecomp.planner.minimize_movement import held_by_every_plan
from eindecomp.planner.options import (
    Chosen,
    Options,
    check_countable,
    check_options,
    check_work,
    described_machine,
    given_vectors,
    mesh_of,
)
from eindecomp.planner.plan import Plan
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.relaxation import Relaxed
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.layout_rules import LayoutRules, checked_ties, pinned_homes
from eindecomp.planner.space.pin import Pin, pins_of
from eindecomp.planner.space.strategy import GivenStrategy, rules_under, strategy_form, strategy_of
from eindecomp.planner.space.viable import FixedParts, most_pieces
from eindecomp.planner.worth_recomputing import worth_recomputing
from eindecomp.solve.clock import interruptible, planning_time, seconds_since
from eindecomp.solve.run import Progress


def plan(
    graph: Graph,
    devices: int | None = None,
    objective: str | Objective = "bytes",
    solver: str = "auto",
    strategy: GivenStrategy | None = None,
    inputs: str = "free",
    memory: int | str | None = None,
    mesh: Mapping[str, int] | None = None,
    machine: Machine | str | Path | None = None,
    pin: Pin | None = None,
    rewrite: bool = True,
    *,
    tie: Mapping[str, str] | None = None,
    work: float | None = 1.2,
    pieces: str = BALANCED,
    lookups: str = WHOLE,
    pending: bool = True,
    reduce_dtype: str | Mapping[str, str] | None = None,
    recompute: str | int | Sequence[str] | None = None,
    recompute_work: float = 1.34,
    microbatches: Mapping[str, int] | None = None,
    time_limit: float = 45,
    progress: bool | None = None,
    on_event: Callable[[Progress], None] | None = None,
    keep_on_interrupt: bool = True,
) -> Plan:
    """Divide every vertex of a graph among devices so that the objective is minimal.

    Every vertex is cut into as many pieces as there are devices, or as its sizes allow; only for
    objective "time" may several devices compute the same piece. Of plans that cost the same, it is
    one whose devices read and hold the least.

    Args:
        graph: What to compute, such as `ed.parse(text)`.
        devices: How many devices, such as `8`; by default as many as `mesh` or `machine` has, or
            one for each core that this process may use.
        objective: What is minimal: `"bytes"` that really move, the paper's upper `"bound"` in
            elements, `"time"` in seconds on `machine`, or an `ed.Objective`.
        solver: `"auto"`, `"exact"` (raises unless the optimum is proved) or, for objective "bound",
            the paper's `"tree"` and `"linear"`.
        strategy: What the plan is restricted to: `"sqrt"`, a name such as `"megatron"`, labels to
            cut along such as `["b"]`, or `{"labels": ["f"], "degrees": {"b": 4}}`, which also says
            how many devices cut which label and where state lies (`planner.space.strategy`).
        inputs: `"free"`, available in any layout at no cost, or `"sharded"`, each stored once over
            all devices.
        memory: The most that a device may hold, such as `"70GB"` or `2**30` bytes.
        mesh: Axes other than the prime factors of `devices`, such as `{"node": 2, "gpu": 8}`.
        machine: For objective "time": an `ed.Machine`, a preset such as `"gpu-server"`, or the file
            that `eindecomp calibrate` has written, such as `"machine.json"`.
        pin: Layouts of tensors that are fixed: pieces or mesh axes by label, such as `{"X": {"i":
            4}}`.
        rewrite: Whether `ed.rewrite` is applied first; `False` plans the graph as written.
        tie: Replaces the ties of the graph: `{"W": "new_W"}`, input W lies where the last run left
            new_W.
        work: How many times the least operations an order of contractions may take, such as `1.2`,
            where another order makes the plan cheaper; objective "time" counts them instead. None
            keeps the usual order, as do a strategy and objective "bound".
        pieces: How sizes are cut that do not divide: `"balanced"`, into pieces that differ by at
            most one, `"even"`, not at all, as JAX requires, or `"ceil"`, into chunks as DTensor
            does, of which the last may be shorter or empty.
        lookups: What moves where an index names rows of a table: `"whole"` blocks of it, so that
            what moves is exact, or only those `"rows"`, so that bytes are a worst case and at most
            so many move. Engines "apart", "threads", "torch" and, on hosts, "spmd" run such plans.
        pending: Whether results may stay in parts, such as the partial sums of several devices,
            where all their readers can read them so: `False` combines the parts of each at once.
        reduce_dtype: The type in which partial results travel where that is smaller than the one
            they accumulate in: `"bfloat16"`, or by tensor or role, such as `{"activations":
            "bfloat16", "Z": "float16"}` (`graph.reduce_types` has the roles).
        recompute: What the backward pass of a training step computes again instead of keeping it:
            tensors, such as `["H0"]`, all within `"layers"`, or all within the first so many parts
            of them, such as `12` (`graph.rewrites.recompute`). `"auto"` computes nothing
            again where that is found to fit into `memory`, else some parts, and else all; the
            order of contractions is then the usual one.
        recompute_work: How many times the operations of the step `"auto"` may take, such as `1.34`.
        microbatches: Into how many parts, computed one after another, a batch is divided, such as
            `{"b": 4}`: less is held at a time, and results that aggregate the batch, such as
            gradients, may wait for the last (`planner.microbatches`). The order of contractions is
            then the usual one.
        time_limit: Seconds, such as `45`, after which the plan is the best one found so far, with a
            bound on the cost of any plan.
        progress: Whether a line shows how far planning has come: `True`, `False`, or None to show
            it once planning has taken a second, on a terminal or in a notebook, unless `on_event`
            is given.
        on_event: Is called now and then with the seconds so far, the stage, the cost of the best
            plan and the bound, such as `print`.
        keep_on_interrupt: Whether Ctrl-C ends planning as the time limit does, once there is a
            plan, which then says so; a second one raises `KeyboardInterrupt`. `False` always raises
            it, for callers that make many plans in a row.

    Returns:
        The plan: `plan.cost`, `plan.bound`, `plan.parts["Z"]`, `plan.explain()`.

    Raises:
        PlanError: An option does not exist, or no plan meets all of them, such as `memory`.
        InfeasibleError: It is proved that no plan does.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 64, j: 64], Y[j, k: 64]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> made = ed.plan(ed.parse(text), 4, inputs="sharded")
        >>> made.cost, made.bound, made.parts["Z"]
        (32768, 32768, {'i': 2, 'k': 1, 'j': 2})
    """
    started = planning_time()
    check_options(graph, objective, solver, inputs, pieces, time_limit, on_event, lookups)
    check_work(work, recompute_work)
    if not isinstance(pending, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"pending must be True or False, not {pending!r}")
    if objective == "bound" and reduce_dtype is not None:
        raise PlanError("reduce_dtype: objective 'bound' counts elements, whatever their type")
    described = described_machine(objective, machine, devices, mesh)
    laid_out = mesh_of(devices, mesh, described, pieces, lookups)
    pending = pending and laid_out.devices > 1 and objective in ("bytes", "time")
    again = recompute_form(recompute)
    counts = checked_microbatches(microbatches)
    # A strategy is for the graph as it is.
    limit = work if rewrite and strategy is None and again is None and not counts else None

    def asked(
        planned: Graph,
        again: Recompute,
        seconds: float,
        follow: Callable[[Progress], None] | None,
        *,
        waits: bool,
    ) -> Options:
        check_countable(planned, laid_out)
        types = reduce_types(planned, reduce_dtype, graph)
        # The paper's bound knows no layouts: there the graph's ties have no meaning.
        ties = checked_ties(planned, {} if tie is None and objective == "bound" else tie)
        planned, copies = micro_batched(recomputed(planned, again, ties), counts, ties)
        types = for_copies(types, copies, planned)
        planned = with_reduce_types(planned, types, ties)
        pins = for_copies(pin, copies, planned) if pin and copies else pin
        rules = LayoutRules(inputs, pinned_homes(planned, laid_out, pins, ties, graph), ties)
        restriction = None if strategy is None else strategy_of(strategy, planned, laid_out.devices)
        if restriction is not None:
            rules = rules_under(restriction, planned, laid_out, rules)
        return Options(
            planned, laid_out, objective, solver, rules,
            restriction=restriction,
            machine=described,
            memory=None if memory is None else parse_bytes(memory),
            time_limit=max(seconds, 0),
            on_event=follow, pin=pins_of(pins), work=limit, pending=waits, reduce_types=types,
            is_last=memory is None or not waits,
        )  # fmt: skip

    with (
        from_above("show.progress").solving(progress, on_event) as follow,
        interruptible(keep=keep_on_interrupt) as ending,
    ):
        planned = rewritten(graph, keeps_sums=pending) if rewrite else graph

        def attempt(kind: Recompute, share: float) -> tuple[Options, Chosen]:
            left = share * (started + time_limit - planning_time())
            options = asked(planned, kind, left, follow, waits=pending)
            try:
                return options, _chosen(graph, options)
            except PlanError:
                if options.is_last:
                    raise
                # Sums that are kept, so that they may wait, take memory, and more choices time.
                left = share * (started + time_limit - planning_time())
                plain = rewritten(graph) if rewrite else planned
                options = asked(plain, kind, left, follow, waits=False)
                return options, _chosen(graph, options)

        kinds = (again,)
        if again == AUTO:
            kinds = (None,)
            if memory is not None:
                kinds = worth_recomputing(
                    planned,
                    checked_ties(planned, tie),
                    recompute_work,
                    parse_bytes(memory),
                    lambda kind: held_by_every_plan(asked(planned, kind, 0, None, waits=False)),
                )
        again, (options, chosen) = _first_that_fits(attempt, kinds)
    rules = options.rules
    bound, total = chosen.bound, chosen.costs.total
    if isinstance(total, int) and isinstance(bound, float):  # whole numbers of bytes
        bound = max(bound, ceil(bound * (1 - budgets.SUM_ROUNDING)))
    is_proved = bound >= total * (1 - budgets.ROUNDING)
    if bound > total * (1 + 1e-6):  # by less, rounding alone may have put it above the cost
        raise AssertionError(f"{bound} is not a lower bound on a plan that costs {total}")
    return Plan(
        chosen.graph, laid_out, objective, inputs, chosen.parts, chosen.decisions, chosen.given,
        chosen.costs, min(bound, total),
        strategy=strategy_form(strategy),
        pin=options.pin, tie=dict(rules.tie), machine=described, memory=options.memory,
        work=limit if chosen.orders is not None or chosen.pending else None,
        orders=chosen.orders, pending=chosen.pending,
        reduce_dtype=options.reduce_types, recompute=again,
        microbatches={label: count for label, count in counts.items() if count > 1}, solver=solver,
        method=chosen.method, stopped_by=ending.reason(is_proved), seconds=seconds_since(started),
    )  # fmt: skip


def _first_that_fits(
    attempt: Callable[[Recompute, float], tuple[Options, Chosen]], kinds: tuple[Recompute, ...]
) -> tuple[Recompute, tuple[Options, Chosen]]:
    """The first kind of which there is a plan, and that; or the last one's error."""
    for kind in kinds[:-1]:
        share = budgets.FIRST_KIND_SHARE if kind is None else budgets.FEW_PARTS_SHARE
        with suppress(PlanError):
            return kind, attempt(kind, share)
    return kinds[-1], attempt(kinds[-1], 1)


def _chosen(graph: Graph, options: Options) -> Chosen:
    """The cheapest plan of what is asked; `graph` is the graph as written."""
    if options.objective == "bound":
        return minimize_bound(options)
    return minimize_with_order(graph, options, options.work)


def cost(
    graph: Graph,
    parts: Mapping[str, Mapping[str, int]],
    devices: int,
    objective: str | Objective = "bound",
    *,
    inputs: str = "free",
    mesh: Mapping[str, int] | None = None,
    machine: Machine | str | Path | None = None,
    pieces: str = BALANCED,
) -> Cost:
    """What a hand-made decomposition of a graph, as written, costs.

    What really moves is counted for the best axes and homes for these parts.

    Args:
        graph: What is computed, such as `ed.parse(text)`.
        parts: For each computed vertex into how many pieces each label is cut, such as `{"Z": {"i":
            2, "k": 2}}`; labels left out are whole.
        devices: How many devices, such as `4`.
        objective: `"bound"`, `"bytes"`, `"time"` or an `ed.Objective`, as for `ed.plan`.
        inputs: `"free"` or `"sharded"`, as for `ed.plan`.
        mesh: Axes other than the prime factors of `devices`, such as `{"node": 2, "gpu": 2}`.
        machine: For objective "time", such as `"cpu-cluster"`.
        pieces: How sizes are cut that do not divide: `"balanced"`, `"even"` or `"ceil"`.

    Returns:
        Its `total`, and the parts of it by vertex.

    Raises:
        PlanError: The decomposition does not fit the graph.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 8, j: 8], Y[j, k: 8]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> ed.cost(ed.parse(text), {"Z": {"i": 2, "k": 2}}, devices=4).total
        256
    """
    check_options(graph, objective, "auto", inputs, pieces, 0)
    described = described_machine(objective, machine, devices, mesh)
    laid_out = mesh_of(devices, mesh, described, pieces)
    check_countable(graph, laid_out)
    wanted = given_vectors(graph, parts, pieces)
    if objective == "bound":
        return paper_cost(graph, wanted)
    even = laid_out.cuts_evenly
    most = {n: most_pieces(v.sizes, laid_out.sizes, even=even) for n, v in planned_views(graph)}
    redundant = any(prod(wanted[name]) != count for name, count in most.items())
    price = price_of(objective, laid_out, described)
    restriction = FixedParts(wanted, laid_out.devices)
    search = Search(graph, price, LayoutRules(inputs), restriction, redundant=redundant)
    outcome = choose(search, Relaxed(0), budgets.AXES_SECONDS)
    decisions = {name: outcome.decisions[name] for name in most}
    return decided_cost(graph, price, decisions, outcome.given)
