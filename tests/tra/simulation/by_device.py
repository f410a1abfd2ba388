"""The simulator's model once more, device by device and message by message, from programs' rows.

Nothing is shared with the simulator but the machine: tiles, peers and bytes come from what each
device's row says. It is slow and follows the words of `docs/simulation.md`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from eindecomp.graph.work import tile_operations
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import coordinates, group_along
from eindecomp.layout.view import view_of
from eindecomp.tra.program.overlap import StepPart, overlapped
from eindecomp.tra.program.steps import AllGather, Compute, Free, Generate, Load, Move


class ByDevice:
    """Direct exchanges only: all messages of a step side by side."""

    def __init__(self, program, machine, *, overlap=True):
        self.program, self.machine = program, machine
        mesh = program.mesh
        rates = [(machine.bandwidth_of(n), machine.latency_of(n)) for n in mesh.names]
        runs = [list(run) for _, run in groupby(range(len(rates)), key=rates.__getitem__)]
        self.level_of = {axis: k for k, run in enumerate(runs) for axis in run}
        self.rates = [rates[run[0]] for run in runs]
        self.rows = [program.on(device) for device in range(program.devices)]
        self.queue = [0.0] * program.devices
        self.free = defaultdict(float)  # (way, level, device)
        self.ends = {}  # (step, device)
        self.computing = [0.0] * program.devices
        steps = range(len(program.steps))
        for part in overlapped(program) if overlap else map(StepPart, steps):
            self.carry_out(part, program.steps[part.step])

    @property
    def last(self):
        return max(self.queue)

    def carry_out(self, part, step):
        devices, number = range(self.program.devices), part.step
        own = [row.steps[number] for row in self.rows]
        match step:
            case Load() | Free():
                pass
            case Generate():
                for d in devices:
                    item = self.program.buffers[step.into].item
                    self.kernel(d, 0, volume(own[d].box) * item)
            case Compute():
                for d in devices:
                    self.compute(step, d, own[d])
            case _:
                if part.begins:
                    self.exchange(number, step, own)
                if part.ends:
                    for d in devices:
                        self.queue[d] = max(self.queue[d], self.ends[number, d])

    def kernel(self, d, operations, traffic):
        machine = self.machine
        seconds = max(operations / machine.flops, traffic / machine.memory_bandwidth)
        self.queue[d] += seconds
        self.computing[d] += seconds

    def compute(self, step, d, own):
        buffers = self.program.buffers
        traffic = volume(own.box) * buffers[step.into].item
        for read, box in zip(step.reads, own.reads, strict=True):
            if read is not None:
                traffic += volume(box) * buffers[read.buffer].item
        work = tile_operations(
            self.program.computed_by(step).op, tile_sizes(self.program, step, own)
        )
        self.kernel(d, work, traffic)

    def level(self, one, other):
        mesh = self.program.mesh
        pair = zip(coordinates(mesh, one), coordinates(mesh, other), strict=True)
        return self.level_of[next(axis for axis, (a, b) in enumerate(pair) if a != b)]

    def exchange(self, number, step, own):
        buffers, devices = self.program.buffers, range(self.program.devices)
        source = step.buffer if isinstance(step, AllGather) else step.source
        item = buffers[source].item
        taken, given, peers = self.messages(own, item)
        begin = {}
        for d in devices:
            begin[d] = self.queue[d]
            for level in range(len(self.rates)):
                if given[level, d]:
                    begin[d] = max(begin[d], self.free["out", level, d])
                if taken[level, d]:
                    begin[d] = max(begin[d], self.free["in", level, d])
        made, holds = {}, {}
        for d in devices:
            made[d] = self.queue[d]
            if peers[d]:
                together = max(begin[other] for other in self.group(step, d, peers))
                made[d] = together
                for level, (bandwidth, latency) in enumerate(self.rates):
                    sent = given[level, d] / bandwidth
                    if given[level, d]:
                        holds["out", level, d] = together + sent
                        made[d] = max(made[d], together + sent)
                    if taken[level, d]:
                        full = max(given[level, other] for other in self.group(step, d, peers))
                        most = together + max(taken[level, d], full) / bandwidth
                        holds["in", level, d] = most
                        made[d] = max(made[d], most + latency)
                made[d] += self.combining(step, own[d])
        self.free |= holds
        self.ends |= {(number, d): made[d] for d in devices}

    def messages(self, own, item):
        """What each device receives and sends on each level, and with whom."""
        taken, given, peers = defaultdict(int), defaultdict(int), defaultdict(set)
        for d, mine in enumerate(own):
            for block in mine.exchange.receives:
                level, size = self.level(d, block.peer), volume(block.box) * item
                taken[level, d] += size
                given[level, block.peer] += size
                peers[d].add(block.peer)
                peers[block.peer].add(d)
        return taken, given, peers

    def group(self, step, d, peers):
        """Collectives wait for all that take part in the group, other moves for their peers."""
        axes = getattr(step, "axes", None)
        if isinstance(step, Move):
            own = getattr(step.pattern, "axes", None)
            axes = None if own is None else sum(1 << axis for axis in own)
        if axes is None:
            return peers[d] | {d}
        return [o for o in group_along(self.program.mesh, axes, d) if peers[o]]

    def combining(self, step, own):
        if isinstance(step, Move | AllGather):
            return 0.0
        source, into = self.program.buffers[step.source], self.program.buffers[step.into]
        ways, elements = len(own.members), volume(own.box)
        operations = (ways - 1) * len(source.types) * elements
        traffic = elements * (ways * source.item + into.item)
        return max(operations / self.machine.flops, traffic / self.machine.memory_bandwidth)


def tile_sizes(program, step, own):
    """How many units of each label a device's tile has, by the blocks of its row."""
    view = view_of(program.graph, program.computed_by(step))
    lengths = {}
    for dims, box in [(view.output, own.box), *zip(view.reads, own.reads, strict=True)]:
        if dims is not None and box is not None:
            for dim, (low, high) in zip(dims, box, strict=True):
                if dim.label is not None:
                    lengths[dim.label] = (high - low) // dim.scale
    return {label: lengths[label] for label in view.labels}
