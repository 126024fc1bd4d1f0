"""The split to read of a dataset that is published in several."""

from collections.abc import Sequence

from difficulty_service.errors import DatasetError, Setting


def choose_split(splits: Sequence[str], split: str | None, location: str) -> str:
    """The split that is asked for, or the only one.

    Raises:
        DatasetError: There are several splits and none is chosen, or there is no such split.
    """
    if split is None and len(splits) == 1:
        return splits[0]
    if split is None or split not in splits:
        problem = f"holds the splits {list(splits)}" if split is None else f"has no split {split!r}"
        remedy = ("choose one, for example ", Setting("split", splits[0]))
        if split is not None:
            remedy = (f"choose one of {list(splits)} as ", Setting("split"))
        raise DatasetError(f"{location!r} {problem}", *remedy, parameter="split")
    return split
