"""`examples/extreme_classification.py` draws the same batches again, from any on."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

PATH = Path(__file__).parents[2] / "examples" / "extreme_classification.py"


@pytest.fixture(scope="module")
def example():
    spec = spec_from_file_location("extreme_classification", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_batches_are_the_same_from_any_on(example):
    points = csr_array(np.diag(np.arange(1, 6, dtype=np.float32)))
    data = example.SparsePoints(points, np.arange(5, dtype=np.int32), batch=3)
    whole = list(islice(data.batches(), 4))
    for batch, again in zip(whole[2:], data.batches(2), strict=False):
        assert np.array_equal(batch["x"], again["x"])
        assert np.array_equal(batch["y"] + 1, batch["x"].sum(1))


def test_points_without_a_label_are_left_out(example, tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    path = tmp_path / "train.txt"
    path.write_text("3 4 2\n1,0 0:0.5 3:2\n 1:1\n0 2:1.5\n")
    points, labels, classes = example.read(path, features=3)
    assert points.toarray().tolist() == [[0.5, 0, 0], [0, 0, 1.5]]
    assert (labels.tolist(), classes) == ([0, 0], 2)
