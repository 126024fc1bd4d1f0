"""`leaks`: a training set and test sets in, the samples that they share out."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.analyses.leaks.leaks import LeakReport, find_leaks
from difficulty_service.analyses.leaks.near_search import search_device
from difficulty_service.analyses.leaks.page import write_leak_page
from difficulty_service.base.errors import ConfigError, as_keyword
from difficulty_service.interface.options import read_options, require_results
from difficulty_service.interface.scores import warn
from difficulty_service.interface.splits import Samples, split_of
from difficulty_service.settings.options import LeakOptions

USUAL: float = LeakOptions.model_fields["near_duplicates"].default


def leaks(
    train: Samples,
    *tests: Samples,
    near_duplicates: float | None = USUAL,
    search: str = "auto",
    device: str = "auto",
    out: str | Path | None = None,
    report: str | Path | None = None,
    train_images: str | None = None,
    test_images: Sequence[str] = (),
) -> LeakReport:
    """Finds samples of test sets that are in the training set, too.

    Args:
        train: Training set: a folder of features that `difficulty extract` wrote, a score file with
            its features beside it, whose samples and labels then count, or features, labels and
            perhaps ids as `ds.score` takes them.
        *tests: Test sets, with features of the same backbone.
        near_duplicates: Cosine of the features from which samples are near copies, above 0 and up
            to 1; None for exact copies only, which takes a moment.
        search: `exact` compares all samples with all, `lists` those in the same inverted lists,
            which takes a small part of the time and misses a few near copies; `tests[].lists`
            says how many. `auto` is `lists` beyond 5,000,000,000 pairs of samples.
        device: Where all pairs are compared: `auto`, `cpu`, `cuda`, `cuda:1`.
        out: Table of all pairs to write, ending in .parquet, .csv or .jsonl; None for none.
        report: Page to write, with the pairs side by side, ending in .html; None for none.
        train_images: Location of the images of the training set, for the page; by default the
            dataset that the features name.
        test_images: The same of each test set.

    Returns:
        `tests` has the counts, `pairs` and `marks` of each test set, `pairs` those of all, and
        `train_marks` what `ds.score` and `difficulty clean` take to drop the copied samples from
        the training set.

    Raises:
        ConfigError: There is no test set, the cosine is out of bounds, a search is named without
            near copies to look for, or images without a page.
        FeatureStoreError: Features are of different backbones or preparations, incomplete or
            damaged.
        DifficultyError: As for `report`, where a page or a table cannot be written.
    """
    if not tests:
        raise ConfigError("there is no test set", "name at least one", parameter="tests")
    chosen = "none" if near_duplicates is None else near_duplicates
    options = read_options(LeakOptions, {"near_duplicates": chosen, "search": search})
    require_results(out, report, train_images=train_images, test_images=test_images)
    splits = [split_of("train", train)]
    for number, test in enumerate(tests, start=1):
        splits.append(split_of(f"test {number}", test, splits[0]))
    found = find_leaks(
        splits[0], splits[1:], options.cosine, search=options.search, device=search_device(device)
    )
    notes: Sequence[str] = ()
    if report is not None:
        images = (train_images, *test_images)
        notes = write_leak_page(Path(report), found, splits, images, as_keyword)
    if out is not None:
        found.save(Path(out))
    warn([*found.warnings, *notes])
    return found
