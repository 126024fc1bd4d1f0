"""`select`: a pool of samples in, those to label next or to keep out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from difficulty_service.analyses.selection.selection import Known, Selection, select_samples
from difficulty_service.base.errors import ConfigError
from difficulty_service.interface.arrays import to_texts
from difficulty_service.interface.options import read_options, require_results
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.interface.splits import Samples, split_of
from difficulty_service.scores.measures import measure_table, read_measure
from difficulty_service.settings.options import SelectOptions


def select(
    pool: Samples,
    count: int,
    *,
    strategy: str = "random",
    balanced: bool = False,
    by: str | None = None,
    scores: Scores | None = None,
    labelled: Samples | None = None,
    chosen: Sequence[str] = (),
    seed: int = 0,
    batch_size: int | None = None,
    out: str | Path | None = None,
) -> Selection:
    """Chooses samples to label next, or to keep.

    Args:
        pool: Samples to choose from: a folder of features that `difficulty extract` wrote, a score
            file with its features beside it, whose samples and labels then count, or features,
            labels and perhaps ids as `ds.score` takes them.
        count: Number of samples to choose.
        strategy: `random`, `hard`, `easy`, `typical` or `diverse`; several with commas between are
            mixed, in equal parts or in those of `"random:3,hard:1"`.
        balanced: Whether as many of each class are chosen, as far as possible.
        by: Column of the scores for `hard` and `easy`; by default the first of `rmd`, `loss` and
            `md_agnostic` that they have.
        scores: Scores of the samples, matched by their ids; by default those of `pool`, if it is
            the path of a score file.
        labelled: Samples that have labels already, with features of the same backbone: exact copies
            of them are not chosen, `typical` and `diverse` choose what they do not cover, and
            `balanced` counts them.
        chosen: Ids of samples of the pool that are chosen already, which count in the same way.
        seed: Random seed.
        batch_size: Samples of a batch, which a column of the table numbers; None for no batches.
        out: Table to write, ending in .parquet, .csv or .jsonl; None for none.

    Returns:
        `sample_ids` are the chosen ones, in the order of choice, `table` says what chose each, and
        `other_marks` are what `ds.score` and `difficulty clean` take to drop all others.

    Raises:
        ConfigError: An option is unknown, or would change nothing.
        DatasetError: There are fewer samples than are asked for, an id of `chosen` is unknown, or
            there are no labels to balance.
        ScoreFileError: A strategy reads scores, and there are none of these samples.
        FeatureStoreError: Features are of different backbones, incomplete or damaged.
    """
    given = {"count": count, "strategy": strategy, "balanced": balanced, "by": by, "seed": seed}
    options = read_options(SelectOptions, given | {"batch_size": batch_size})
    if not options.reads("scores") and (by is not None or scores is not None):
        name = "by" if by is not None else "scores"
        raise ConfigError(
            f"{name} changes nothing for {strategy}",
            "choose hard or easy, or leave it out",
            parameter=name,
        )
    require_results(out)
    split = replace(split_of("pool", pool), ignores_labels=False)
    measure = None
    if scores is not None:
        measure = measure_table(scores.table, by)
    elif options.reads("scores"):
        if not isinstance(pool, str | Path):
            raise ConfigError(
                f"{strategy} needs scores",
                "pass the result of ds.score as scores",
                parameter="scores",
            )
        measure = read_measure(Path(pool), by)
    known = Known(
        measure,
        None if labelled is None else split_of("labelled", labelled, split),
        to_texts(chosen, "chosen"),
    )
    selection = select_samples(split, options, known)
    if out is not None:
        selection.save(Path(out))
    warn(selection.warnings)
    return selection
