"""Size of a launch, in the numbers that its time on the device depends on."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchSize:
    """Size of one launch."""

    rows: int
    units: float  #: sum of the rows' sizes, padding included
    squares: float  #: sum of the squares of those sizes
    bucket: int = 0  #: of the longest row

    @classmethod
    def alike(cls, rows: int, size: float, bucket: int = 0) -> "LaunchSize":
        """Returns the size of rows of one size."""
        return cls(rows, rows * size, rows * size * size, bucket)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], bucket: int, *, pads: bool) -> "LaunchSize":
        """Returns the size of rows of these sizes; where the engine pads, each as long as the
        longest."""
        if pads:
            return cls.alike(len(sizes), max(sizes, default=0), bucket)
        return cls(len(sizes), sum(sizes), sum(size * size for size in sizes), bucket)

    def plus(self, rows: int, size: float) -> "LaunchSize":
        """Returns the size with that many more rows of one size."""
        more = self.rows + rows, self.units + rows * size, self.squares + rows * size * size
        return LaunchSize(*more, self.bucket)
