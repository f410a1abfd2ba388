"""Workloads for tests: random ones, and regular models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eindecomp.tra.paging.schedule import Store
from eindecomp.tra.paging.workload import Begins, Links, Paged, Task, Workload
from eindecomp.tra.tiles.ops import ALIGNMENT

MB = 10**6
FAST = Links(to_gpu=55e9, to_host=50e9, from_disk=5e9)


def random_workload(seed, tasks=12):
    """Tasks that read some of what is there, now and then something old, and write something."""
    rng = np.random.default_rng(seed)
    tensors: list[Paged] = []

    def new(begins):
        number = len(tensors)
        nbytes = int(rng.integers(0, 6 * ALIGNMENT)) if rng.random() < 0.9 else 0
        is_result = bool(rng.random() < 0.2)
        lasting = bool(rng.random() < 0.8)
        tensors.append(Paged(number, f"t{number}", nbytes, begins, is_result, lasting))
        return number

    given = [new(Begins(rng.choice(["host", "host", "disk"]))) for _ in range(rng.integers(1, 8))]
    there, listed = list(given), []
    for place in range(int(rng.integers(1, tasks + 1))):
        near = there[-4:] if rng.random() < 0.7 else there
        reads = rng.choice(near, size=min(len(near), int(rng.integers(0, 4))), replace=False)
        writes = [new(Begins.MADE) for _ in range(int(rng.choice([0, 1, 1, 1, 2])))]
        seconds = float(rng.choice([0, 1e-7, 1e-5]))
        listed.append(
            Task(f"task {place}", tuple(map(int, reads)), tuple(writes), place * 10, seconds)
        )
        there += writes
    return Workload(tuple(tensors), tuple(listed))


def renewing(workload, seed):
    """The same tasks, where some of what they make is read in the next run for what was given."""
    rng = np.random.default_rng(seed)
    tensors = [*workload.tensors]
    made = [t for t in tensors if t.made]
    for old in [t for t in tensors if not t.made and rng.random() < 0.7]:
        if made:
            new = made.pop(int(rng.integers(len(made))))
            tensors[new.number] = replace(new, is_result=True)
            tensors[old.number] = replace(
                old, nbytes=new.nbytes, is_result=False, lasting=False, renewed_by=new.number
            )
    return Workload(tuple(tensors), workload.tasks)


def stored_by(schedule):
    """The tensors that go to the host."""
    return tuple(action.tensor for action in schedule.actions if isinstance(action, Store))


def window(tensor):
    """The bytes of a tensor's window."""
    return max(1, -(-tensor.nbytes // ALIGNMENT)) * ALIGNMENT


def least_arena(workload):
    """The bytes of the task whose tensors take most."""
    used = [task.tensors for task in workload.tasks]
    return max(sum(window(workload.tensors[number]) for number in tensors) for tensors in used)


def layers(count, seconds, sizes=(134 * MB, 270 * MB), activation=MB, begins=Begins.HOST):
    """A chain of tasks, each with weights of its own, one for every size and layer."""
    tensors, tasks = [Paged(0, "input", activation, Begins.HOST, lasting=False)], []
    state = 0
    for layer in range(count):
        for part, size in enumerate(sizes):
            weight = Paged(len(tensors), f"w{layer}.{part}", size, begins)
            made = Paged(len(tensors) + 1, f"x{layer}.{part}", activation, Begins.MADE)
            tensors += [weight, made]
            tasks.append(
                Task(f"task {layer}.{part}", (state, weight.number), (made.number,), 0, seconds)
            )
            state = made.number
    return Workload(tuple(tensors), tuple(tasks))


def training(count, weight, activation, seconds):
    """A step of training: results are kept for the way back, where gradients go to the host."""
    tensors, tasks = [], []

    def new(name, nbytes, begins, is_result=False):
        tensors.append(Paged(len(tensors), name, nbytes, begins, is_result))
        return len(tensors) - 1

    states = [new("x", activation, Begins.HOST)]
    weights = [new(f"w{layer}", weight, Begins.HOST) for layer in range(count)]
    for layer in range(count):
        states.append(new(f"x{layer}", activation, Begins.MADE))
        tasks.append(
            Task(f"forward {layer}", (weights[layer], states[layer]), (states[-1],), 0, seconds)
        )
    gradient = states[-1]
    for layer in reversed(range(count)):
        reads = (weights[layer], states[layer], gradient)
        gradient = new(f"dx{layer}", activation, Begins.MADE)
        writes = gradient, new(f"dw{layer}", weight, Begins.MADE, True)
        tasks.append(Task(f"backward {layer}", reads, writes, 0, 2 * seconds))
    return Workload(tuple(tensors), tuple(tasks))
