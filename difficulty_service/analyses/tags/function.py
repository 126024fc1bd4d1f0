"""`tags`: features and the tags of samples in, wrong and missing tags out."""

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from difficulty_service.analyses.tags.model import GivenTags
from difficulty_service.analyses.tags.scores import LEAST, SampleTags, score_tags, tags_of_samples
from difficulty_service.base.errors import ConfigError, DatasetError
from difficulty_service.datasets.tags import TagColumns, open_tags
from difficulty_service.features.array_files import open_features
from difficulty_service.features.source import FeatureSource
from difficulty_service.interface.arrays import Matrix, read_arrays, to_column, to_matrix
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.interface.tables import Column, is_arrow, is_pandas
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.class_evidence import samples_of_features


@dataclass(frozen=True)
class TagScores:
    """What is thought of tags.

    Attributes:
        decisions: A row for each tag that is given, and for each that may be missing: its label is
            the tag or `not` and the tag, `p_wrong` the probability that this is wrong.
        tags: A row for each tag, as an Arrow table: `tag`, `given`, `wrong`, `probably_wrong`,
            `almost_certainly_wrong`, `missing`, `probably_missing` and `almost_certainly_missing`.
        wrong: Share of the given tags that are wrong.
        missing: Share of the tags that belong to samples which is not given.
    """

    decisions: Scores
    tags: pa.Table
    wrong: float
    missing: float


def tags(
    features: Matrix | str | Path,
    tags: str | Path | Sequence[Sequence[str]],
    *,
    ids: Column = None,
    columns: Sequence[str] = (),
    separator: str | None = None,
    id_column: str | None = None,
    least: float = LEAST,
    out: str | Path | None = None,
) -> TagScores:
    """Finds wrong and missing tags, where a sample has any number of them.

    Args:
        features: Features that `difficulty extract` wrote, by their path, or as `ds.score` takes
            them.
        tags: The tags of each sample: the path of a table, or a list of names for each row of
            features, which may be in a Series or column of lists.
        ids: Ids of the samples, where the features are in memory; see `ds.score`.
        columns: The column of a table with lists or texts of tags, or several of 0 and 1, one for
            each tag; wildcards such as `has_*` are allowed. By default `tags`, or else `labels`.
        separator: Separator between the tags of a text; None for `|`.
        id_column: Column with the ids of the samples; None for `sample_id`, or else what has them.
        least: Probability from which a missing tag gets a row.
        out: Score file to write, which `difficulty report`, `difficulty explore` and `difficulty
            clean` take; None for none. Beside it is a table of all tags.

    Raises:
        ConfigError: `least` is not a probability, or ids are given beside features in a file.
        DatasetError: The tags cannot be read, or are of other samples.
        StatisticsError: There is nothing to compare.
    """
    if not 0 < least <= 1:
        raise ConfigError(f"least is {least}", "expected above 0 and at most 1", parameter="least")
    store = _open(features, ids)
    if isinstance(tags, str | Path):
        named = TagColumns(tuple(columns), separator, id_column)
        ids = samples_of_features(store).sample_ids
        given = tags_of_samples(open_tags(str(tags), named), ids)
    else:
        given = tags_of_lists(tags, samples_of_features(store).given.shape[0])
    with ExitStack() as stack:
        if out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="difficulty-"))
            out = Path(folder, "tags.parquet")
        report = score_tags(store, given, Path(out), least=least)
        decisions = Scores(read_scores(Path(out)))
    warn(report.warnings)
    return TagScores(decisions, report.tags, report.wrong, report.missing)


def _open(features: Matrix | str | Path, ids: Column) -> FeatureSource:
    if isinstance(features, str | Path):
        if ids is not None:
            raise ConfigError("the features in a file have ids", "leave them out", parameter="ids")
        return open_features(Path(features))
    matrix = to_matrix(features)
    return read_arrays(matrix, np.zeros(len(matrix), np.int64), ids)


def tags_of_lists(tags: Sequence[Sequence[str]], num_samples: int) -> SampleTags:
    """The tags of all samples, from a list for each."""
    if is_arrow(tags) and not is_pandas(tags, "Series"):
        tags = to_column(tags, "tags").to_pylist()
    if len(tags) != num_samples:
        raise DatasetError(
            f"{len(tags):,} lists of tags for {num_samples:,} samples",
            "pass a list for each sample, empty for none",
            parameter="tags",
        )
    for row, each in enumerate(tags):
        if isinstance(each, str) or not isinstance(each, Iterable):
            found = "one text" if isinstance(each, str) else repr(each)
            raise DatasetError(
                f"the tags of row {row} are {found}",
                "pass a list of texts for each sample, empty for none",
                parameter="tags",
            )
    names = sorted({str(tag) for each in tags for tag in each})
    index = {name: place for place, name in enumerate(names)}
    places = [sorted({index[str(tag)] for tag in each}) for each in tags]
    starts = torch.tensor([0, *(len(each) for each in places)]).cumsum(0)
    flat = torch.tensor([place for each in places for place in each], dtype=torch.int64)
    kept = torch.ones(num_samples, dtype=torch.bool)
    return SampleTags(tuple(names), GivenTags(starts, flat, len(names)), kept)
