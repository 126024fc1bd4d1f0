"""`difficulty score`: a dataset or its features in, a score file out."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import err
from difficulty_service.commands.dataset_report import report_dataset
from difficulty_service.commands.extract import (
    build_request,
    choose_backbone,
    report_extraction,
    show_extraction,
    with_backbone,
)
from difficulty_service.commands.extraction import OPTION_NAMES, Extraction, takes_extraction
from difficulty_service.commands.fit import report_fit
from difficulty_service.commands.machine import with_precision
from difficulty_service.commands.options import (
    MatmulDtype,
    MatmulDtypeName,
    NearDuplicates,
    ScorerNames,
    ShrinkageName,
    Verbose,
    parse_shrinkage,
)
from difficulty_service.commands.report import check_report_file, write_score_report
from difficulty_service.commands.score_report import print_next_steps, report_scores
from difficulty_service.options import FIT_ONLY, known_scorers

if TYPE_CHECKING:
    from difficulty_service.pipeline import ExtractedDataset, ExtractRequest, ScoreRequest
    from difficulty_service.scoring.score_store import ScoreSummary


@takes_extraction
def score(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="STORE|DATASET",
            help="Features (what `difficulty extract` wrote, .npz, .npy, or Parquet with a column "
            "of vectors), or a dataset to extract.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="File to write: its name ends in .parquet, .csv or .jsonl.")
    ],
    gaussians: Annotated[
        Path | None, typer.Option(help="Score against Gaussians that `difficulty fit` wrote.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels of features in a file: .npy, or text with a label on each line; default: "
            "those in the file, or labels.npy beside it."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write a page with the images, as `difficulty report` does."),
    ] = None,
    scorers: ScorerNames = "rmd",
    near_duplicates: NearDuplicates = None,
    shrinkage: ShrinkageName = "auto",
    matmul_dtype: MatmulDtypeName = MatmulDtype.AUTO,
    verbose: Verbose = False,
    *,
    extraction: Extraction,
) -> None:
    """Scores how hard each sample is; larger is harder.

    Given a dataset, the features are extracted first and kept in a folder beside the output, so
    that a second run with other statistics reads no image.
    """
    from difficulty_service.feature_store.array_files import is_array_file
    from difficulty_service.feature_store.description import is_store
    from difficulty_service.feature_store.opening import open_features
    from difficulty_service.feature_store.store import holds_only_parts
    from difficulty_service.pipeline import Callbacks, ScoreRequest, score_features
    from difficulty_service.score_file import require_score_file_name
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians
    from difficulty_service.statistics.fit_options import FitOptions

    if gaussians is not None and (useless := given_options(context, FIT_ONLY)):
        raise typer.BadParameter(
            f"{gaussians} holds fitted Gaussians, so {', '.join(useless)} would change nothing"
        )
    names = parse_scorers(scorers)
    options = FitOptions(parse_shrinkage(shrinkage), matmul_dtype.value)
    require_score_file_name(out)
    if report is not None:
        check_report_file(report)
    fitted = None if gaussians is None else FittedGaussians.load(gaussians)
    scoring = ScoreRequest(out, names, options, fitted, near_duplicates)
    is_file = is_array_file(Path(source))
    if labels is not None and not is_file:
        raise typer.BadParameter(f"--labels needs a file of features, which {source} is not")
    if is_file or is_store(Path(source)) or holds_only_parts(Path(source)):
        refuse_extraction_options(context, source)
        features = open_features(Path(source), labels)
        callbacks = Callbacks(fitted=lambda fitted: report_fit(fitted, verbose=verbose))
        summary = score_features(features, scoring, callbacks)
    else:
        request = build_request(source, out.with_suffix(".features"), extraction)
        choose = partial(choose_backbone, extraction, fitted)
        summary = run_score(request, scoring, choose, verbose=verbose)
    report_scores(summary, out, verbose=verbose)
    if report is not None and summary.num_scored:
        write_score_report(out, report)
    print_next_steps(summary, out, reported=report is not None)


def parse_scorers(text: str) -> list[str]:
    """Reads names of scorers, separated by commas.

    Raises:
        BadParameter: A name is unknown, or there twice.
    """
    try:
        return list(known_scorers([name.strip() for name in text.split(",") if name.strip()]))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--scorers") from None


def given_options(context: typer.Context, names: Iterable[str]) -> list[str]:
    """Those of some options that are on the command line, as they are written there."""
    return [
        f"--{name.replace('_', '-')}"
        for name in names
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    ]


def refuse_extraction_options(context: typer.Context, source: str) -> None:
    """Raises BadParameter where options of extraction are given, which features have no use for."""
    if useless := given_options(context, OPTION_NAMES):
        raise typer.BadParameter(
            f"{source} holds features already, so {', '.join(useless)} would change nothing"
        )


def run_score(
    extraction: "ExtractRequest",
    scoring: "ScoreRequest",
    choose: Callable[[], str],
    *,
    verbose: bool,
) -> "ScoreSummary":
    """Runs the whole pipeline with a progress bar and prints what each stage made.

    Args:
        extraction: The dataset, and the settings of its features.
        scoring: Settings by which to score them.
        choose: Chooses the backbone, once the dataset is open.
        verbose: Whether to print the statistics of the fit.
    """
    from difficulty_service.datasets import open_dataset
    from difficulty_service.pipeline import Callbacks, score_dataset

    with show_extraction(extraction) as bar:
        dataset = open_dataset(extraction.location, extraction.dataset)
        report_dataset(dataset)
        extraction = with_backbone(extraction, choose())
        extraction = with_precision(extraction, dataset, scoring.fitted)
        err.print(f"features go to {extraction.out}, scores to {scoring.out}", markup=False)

        def on_extracted(extracted: "ExtractedDataset") -> None:
            bar.close()
            report_extraction(extraction, extracted)

        callbacks = Callbacks(
            bar.update,
            on_extracted,
            lambda fitted: report_fit(fitted, verbose=verbose),
        )
        return score_dataset(extraction, scoring, callbacks, dataset).scores
