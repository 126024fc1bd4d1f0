"""`diff`: two versions of a dataset in, what differs between them out."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.analyses.versions.changes import ChangeReport, find_changes
from difficulty_service.analyses.versions.page import write_change_page
from difficulty_service.base.errors import as_keyword
from difficulty_service.interface.options import read_options, require_results
from difficulty_service.interface.scores import Scores, warn
from difficulty_service.interface.splits import Samples, split_of
from difficulty_service.scores.measures import measure_table, read_measure
from difficulty_service.settings.options import DiffOptions


def diff(
    old: Samples,
    new: Samples,
    *,
    scores: Scores | None = None,
    permutations: int = 200,
    seed: int = 0,
    out: str | Path | None = None,
    report: str | Path | None = None,
    images: str | None = None,
) -> ChangeReport:
    """Finds what differs between two versions of a dataset.

    Args:
        old: Old version: a folder of features that `difficulty extract` wrote, a score file with
            its features beside it, whose samples and labels then count, or features, labels and
            perhaps ids as `ds.score` takes them.
        new: New version, with features of the same backbone.
        scores: Scores of the new version, matched by their ids, which tell what is hard; by default
            those of `new`, if it is the path of a score file.
        permutations: Number of permutations that tell how far classes would move by chance; 0 for
            none.
        seed: Seed of the permutations.
        out: Table of all changes to write, ending in .parquet, .csv or .jsonl; None for none.
        report: Page to write, of what is new and hard, ending in .html; None for none.
        images: Location of the images of the new version, for the page; by default the dataset that
            the features name.

    Returns:
        `counts` has how many samples are kept, moved, changed, added and removed, `relabelled` how
        many have another label, `table` all of them, and `classes` how far each class moved.

    Raises:
        ConfigError: An option is out of bounds, or images are named without a page.
        DatasetError: A version has no samples.
        FeatureStoreError: Features are of different backbones or preparations, incomplete or
            damaged.
        ScoreFileError: The scores are of none of the samples.
        DifficultyError: As for `report`, where a page or a table cannot be written.
    """
    options = read_options(DiffOptions, {"permutations": permutations, "seed": seed})
    require_results(out, report, images=images)
    first = split_of("old", old)
    second = split_of("new", new, first)
    measure = None
    if scores is not None:
        measure = measure_table(scores.table, None)
    elif second.given is not None and isinstance(new, str | Path):
        measure = read_measure(Path(new), None)
    found = find_changes(first, second, options.permutations, options.seed, measure)
    notes: Sequence[str] = ()
    if report is not None:
        notes = write_change_page(Path(report), found, (first, second), images, as_keyword)
    if out is not None:
        found.save(Path(out))
    warn([*found.warnings, *notes])
    return found
