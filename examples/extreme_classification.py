"""Trains the paper's classifier on a file of sparse points, such as AmazonCat-13K's train.txt.

Files of the extreme-classification repository begin with `points features labels`; each further
line is a point in svmlight's format, `3,17 0:0.5 12:1.25`, which scikit-learn reads.

pip install scikit-learn
python examples/extreme_classification.py train.txt --features 1000 --steps 100
"""

import argparse
from itertools import count
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from eindecomp import models


class SparsePoints:
    """Batches of points drawn at random; number k is the same whenever it is asked for."""

    def __init__(self, points: csr_array, classes: np.ndarray, batch: int) -> None:
        self.points, self.classes, self.batch = points, classes, batch

    def batches(self, start: int = 0):
        """The batches from one on, without end, as `fit` reads them when it resumes."""
        for number in count(start):
            rows = np.random.default_rng(number).integers(0, len(self.classes), self.batch)
            yield {"x": self.points[rows].toarray(), "y": self.classes[rows]}


def read(path: Path, features: int) -> tuple[csr_array, np.ndarray, int]:
    """The first features of points that have a label, their first labels, and how many exist."""
    from sklearn.datasets import load_svmlight_file

    with path.open("rb") as file:
        _, total, classes = map(int, file.readline().split())
        points, labels = load_svmlight_file(
            file, n_features=total, dtype=np.float32, multilabel=True, zero_based=True
        )
    named = [k for k, own in enumerate(labels) if own]
    first = np.array([labels[k][0] for k in named], np.int32)
    return csr_array(points)[named, :features], first, classes


def main() -> None:
    """Train on one file."""
    take = argparse.ArgumentParser()
    take.add_argument("file", type=Path)
    take.add_argument("--features", type=int, default=1000, help="only the first ones are kept")
    take.add_argument("--batch", type=int, default=128)
    take.add_argument("--steps", type=int, default=100)
    take.add_argument("--checkpoint", help="a folder; training goes on from what is there")
    given = take.parse_args()
    points, labels, classes = read(given.file, given.features)
    graph = models.ffnn(given.batch, points.shape[1], hidden=2048, classes=classes)
    fitted = models.fit(
        graph,
        SparsePoints(points, labels, given.batch),
        models.initial(graph),
        lr=0.1,
        steps=given.steps,
        checkpoint=given.checkpoint,
    )
    print(
        f"loss {fitted.losses[0]:.4f} at first, {fitted.losses[-1]:.4f} after {fitted.step} steps"
    )


if __name__ == "__main__":
    main()
