"""ResNet-50 and a UNet, planned freely, against data parallelism and images cut into rows by hand.

Planned bytes on 8 and 64 devices, forward and for a training step, inputs sharded, with the seconds
of planning and the gap. Batch norm is that of evaluation, so that images do not depend on each
other. `--switch` shows what the free plan of a block cuts by batch and image size.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

import eindecomp as ed


class Bottleneck(nn.Module):
    """ResNet-50's block: 1×1, 3×3 and 1×1, and a shortcut."""

    def __init__(self, given: int, width: int, step: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, width, 3, step, 1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        is_same = given == 4 * width and step == 1
        other = (nn.Conv2d(given, 4 * width, 1, step, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Identity() if is_same else nn.Sequential(*other)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet(blocks: tuple[int, ...] = (3, 4, 6, 3)) -> nn.Module:
    """ResNet-50, or with fewer blocks."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    given = 64
    for stage, count in enumerate(blocks):
        for k in range(count):
            width = 64 * 2**stage
            layers.append(Bottleneck(given, width, 2 if stage and not k else 1))
            given = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000))


def twice(given: int, width: int) -> nn.Module:
    """Two 3×3 convolutions."""
    first = (nn.Conv2d(given, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
    again = (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
    return nn.Sequential(*first, *again)


class UNet(nn.Module):
    """Down by pools, up by transposed convolutions, with what was there on the way down."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**k for k in range(depth + 1)]
        self.down = nn.ModuleList(map(twice, [3, *widths], widths))
        pairs = list(zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.joined = nn.ModuleList(twice(2 * b, b) for _, b in pairs)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for k, part in enumerate(self.down):
            x = part(x if not k else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, part, skip in zip(self.up, self.joined, reversed(kept[:-1]), strict=True):
            x = part(torch.cat([skip, up(x)], 1))
        return self.last(x)


class Loss(nn.Module):
    """The mean of the squares of a model's results."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.model(x) ** 2).mean()


MODELS = {"ResNet-50": (resnet, 224), "UNet": (UNet, 512)}


def graph_of(model: nn.Module, batch: int, size: int, *, trains: bool) -> ed.Graph:
    """The forward pass, or with a loss and its gradients."""
    module = (Loss(model) if trains else model).eval()
    graph = ed.from_torch(
        module, torch.zeros(batch, next(model.parameters()).shape[1], size, size, device="meta")
    )
    if not trains:
        return graph
    names = {name for name, _ in module.named_parameters()}
    weights = [vertex.name for vertex in graph.inputs if vertex.name in names]
    return ed.grad(graph, graph.outputs[0], weights)


def image_labels(graph: ed.Graph) -> list[str]:
    """The labels of rows of images; gradients of what is read through windows call them `at2`."""
    found = {label for vertex in graph.vertices.values() for label in vertex.labels}
    return sorted(n for n in found if n.rstrip("_") == "at2" or n.rstrip("0123456789_") == "y")


def cuts(plan: ed.Plan) -> Counter[str]:
    """How many convolutions are cut along what."""
    kinds: Counter[str] = Counter()
    for vertex in plan.graph.vertices.values():
        if not vertex.windows or vertex.name not in plan.parts:
            continue
        own = {label[0] for label, parts in plan.parts[vertex.name].items() if parts > 1}
        kinds["+".join(sorted(own)) or "none"] += 1
    return kinds


def rows(asked: argparse.Namespace) -> Iterator[str]:
    for name, (make, size) in MODELS.items():
        for trains in (False, True):
            for batch in asked.batches:
                with torch.device("meta"):
                    graph = ed.rewrite(graph_of(make(), batch, size, trains=trains))
                for devices in asked.devices:
                    for what in ("free", "batch", "rows") if batch > 1 else ("free", "rows"):
                        labels = {"free": None, "batch": ["b"], "rows": image_labels(graph)}[what]
                        yield row(graph, devices, labels, asked.seconds) + (
                            f"  {name}, {'training' if trains else 'forward'}, b={batch}, {what}"
                        )


def row(graph: ed.Graph, devices: int, labels: list[str] | None, seconds: float) -> str:
    """What a plan moves, how long planning took, the gap, and what it cuts."""
    try:
        plan = ed.plan(
            graph, devices, strategy=labels, inputs="sharded", rewrite=False, time_limit=seconds
        )
    except ed.errors.EinDecompError as error:
        return f"{devices:4} {str(error)[:60]:>60}"
    told = " ".join(f"{cut}:{count}" for cut, count in cuts(plan).most_common(5))
    spent = f"{plan.gap:8.2%} {plan.seconds:6.1f} s"
    return f"{devices:4} {plan.cost / 1e6:14,.1f} MB {spent}  {told:30}"


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 256])
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seconds", type=float, default=45, help="of planning, at most")
    parser.add_argument("--switch", action="store_true", help="one block by batch and image size")
    asked = parser.parse_args()
    if not asked.switch:
        for line in rows(asked):
            print(line, flush=True)
        return
    for batch, size in ((64, 56), (8, 56), (1, 56), (1, 512), (1, 4096)):
        with torch.device("meta"):
            graph = ed.rewrite(graph_of(Bottleneck(256, 64, 1), batch, size, trains=False))
        for devices in asked.devices:
            print(row(graph, devices, None, asked.seconds), f"{batch} × {size}²", flush=True)


if __name__ == "__main__":
    main()
