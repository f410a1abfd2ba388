"""Made-up sparse points that can be learned, in the shape of AmazonCat: data where there is none.

A class has words of its own, which a hash of its number picks; about half of a point's features are
such words and the rest is noise. Some classes are much rarer than others, as in real catalogues.
A batch depends only on the seed and its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.models.sizes import check_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = np.ndarray[Any, Any]

_WORDS = 64
"""Features that belong to a class, if there are at least sixteen times as many in all."""
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Batches `x` of made-up points, and their classes `y`.

    Args:
        batch: The points of a batch, such as `512`.
        features: The size of a point, such as `1000`.
        classes: How many there are, such as `10`.
        nonzeros: About how many features of a point are not zero, such as `70`.
        seed: That of the random numbers, such as `0`.

    Examples:
        >>> batch = next(Synthetic(4, 10, 3).batches())
        >>> batch["x"].shape, batch["y"].shape
        ((4, 10), (4,))
    """

    batch: int
    features: int
    classes: int
    nonzeros: int = 70
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("batch", "features", "classes", "nonzeros")
        check_whole(**{name: getattr(self, name) for name in sizes})
        check_whole(0, seed=self.seed)

    def batches(self, start: int = 0) -> Iterator[dict[str, Array]]:
        """The batches from one on, without end.

        Args:
            start: The number of the first, such as `0`.
        """
        check_whole(0, start=start)
        for number in count(start):
            features, values, classes = self._points(number)
            x = np.zeros((self.batch, self.features), np.float32)
            np.put_along_axis(x, features, values, axis=1)
            yield {"x": x, "y": classes}

    def _points(
        self, number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int32]]:
        rng = np.random.default_rng([self.seed, number])
        # The square makes low class numbers frequent and high ones rare.
        classes = (self.classes * rng.random(self.batch) ** 2).astype(np.int32)
        shape = (self.batch, self.nonzeros)
        words = max(1, min(_WORDS, self.features // 16))
        word = rng.integers(0, words, shape).astype(np.uint64)
        hashed = classes[:, None].astype(np.uint64) * np.uint64(words) + word + np.uint64(1)
        hashed = hashed * _MULTIPLIERS[0]
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _MULTIPLIERS[1]
        own = ((hashed >> np.uint64(16)) % np.uint64(self.features)).astype(np.int64)
        noise = rng.integers(0, self.features, shape)
        features = np.where(rng.random(shape) < 0.5, own, noise)
        values = (np.round(rng.random(shape) + 0.5, 4)).astype(np.float32)
        return features, values, classes
