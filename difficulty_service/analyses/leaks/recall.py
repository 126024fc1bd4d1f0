"""What a search in a part of all pairs finds of near copies."""

from difficulty_service.base.contract import Found


class ListsResult(Found):
    """What inverted lists find of near copies."""

    samples: int
    """Samples, chosen at random, that were compared with all."""

    pairs: int
    """Pairs of one of them and a near copy."""

    found: int
    """Number of those that the lists found."""

    @property
    def share(self) -> float | None:
        """Share of the pairs that the lists found; None without pairs."""
        return self.found / self.pairs if self.pairs else None
