"""What a launch puts on the device, in the numbers that its time depends on."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchSize:
    """rows; units: their sizes together, padding included; squares: the sum of their squares;
    bucket: of the longest."""

    rows: int
    units: float
    squares: float
    bucket: int = 0

    @classmethod
    def alike(cls, rows: int, size: float, bucket: int = 0) -> "LaunchSize":
        """Rows of one size."""
        return cls(rows, rows * size, rows * size * size, bucket)

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], bucket: int, *, pads: bool) -> "LaunchSize":
        """Rows of these sizes, each as long as the longest where the engine pads."""
        if pads:
            return cls.alike(len(sizes), max(sizes, default=0), bucket)
        return cls(len(sizes), sum(sizes), sum(size * size for size in sizes), bucket)

    def plus(self, rows: int, size: float) -> "LaunchSize":
        """With so many more of one size."""
        more = self.rows + rows, self.units + rows * size, self.squares + rows * size * size
        return LaunchSize(*more, self.bucket)
