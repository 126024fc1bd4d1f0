"""The share of one run where several divide a dataset."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardSubset:
    """The shards of one of several runs that divide a dataset among them.

    Attributes:
        index: Index of the run, from 0.
    """

    index: int = 0
    num_subsets: int = 1

    def includes(self, shard: int) -> bool:
        """Whether a shard belongs to the subset."""
        return shard % self.num_subsets == self.index
