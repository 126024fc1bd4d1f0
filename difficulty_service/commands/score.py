"""`difficulty score`: a dataset or its features in, `scores.parquet` out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import out as console
from difficulty_service.commands.console import print_table, print_warnings
from difficulty_service.commands.extract import build_request, report_extraction, show_extraction
from difficulty_service.commands.extraction import OPTION_NAMES, Extraction, takes_extraction
from difficulty_service.commands.fit import report_fit
from difficulty_service.commands.options import (
    MatmulDtype,
    MatmulDtypeName,
    ShrinkageName,
    Verbose,
    parse_shrinkage,
)

if TYPE_CHECKING:
    from difficulty_service.pipeline import ExtractedDataset, ExtractRequest, ScoreRequest
    from difficulty_service.scoring.score_store import ScoreSummary

SCORERS = ("rmd", "kmeans", "knn")
SHOWN = 5


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
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
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
    scorers: Annotated[
        str, typer.Option(help="Some of rmd, kmeans, knn, separated by commas.")
    ] = "rmd",
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
    from difficulty_service.feature_store.array_files import is_array_file, read_array_file
    from difficulty_service.feature_store.store import is_store, open_store
    from difficulty_service.pipeline import Callbacks, ScoreRequest, score_features
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians
    from difficulty_service.statistics.fit_options import FitOptions

    scoring = ScoreRequest(
        out,
        parse_scorers(scorers),
        FitOptions(parse_shrinkage(shrinkage), matmul_dtype.value),
        None if gaussians is None else FittedGaussians.load(gaussians),
    )
    is_file = is_array_file(Path(source))
    if labels is not None and not is_file:
        raise typer.BadParameter(f"--labels needs a file of features, which {source} is not")
    if is_file or is_store(Path(source)):
        refuse_extraction_options(context, source)
        features = read_array_file(Path(source), labels) if is_file else open_store(Path(source))
        callbacks = Callbacks(fitted=lambda fitted: report_fit(fitted.gaussians, verbose=verbose))
        summary = score_features(features, scoring, callbacks)
    else:
        request = build_request(source, out.with_suffix(".features"), extraction)
        summary = run_score(request, scoring, verbose=verbose)
    report_scores(summary, out)


def parse_scorers(text: str) -> list[str]:
    """Reads names of scorers, separated by commas.

    Raises:
        BadParameter: A name is unknown.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - set(SCORERS))
    if unknown or not names:
        raise typer.BadParameter(
            f"unknown scorers {unknown}; expected some of {', '.join(SCORERS)}",
            param_hint="--scorers",
        )
    return names


def refuse_extraction_options(context: typer.Context, source: str) -> None:
    """Raises BadParameter where options of extraction are given, which features have no use for."""
    useless = [
        f"--{name.replace('_', '-')}"
        for name in OPTION_NAMES
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    ]
    if useless:
        raise typer.BadParameter(
            f"{source} holds features already, so {', '.join(useless)} would change nothing"
        )


def run_score(
    extraction: "ExtractRequest", scoring: "ScoreRequest", *, verbose: bool
) -> "ScoreSummary":
    """Runs the whole pipeline with a progress bar and prints what each stage made."""
    from difficulty_service.pipeline import Callbacks, score_dataset

    with show_extraction(extraction) as bar:

        def on_extracted(extracted: "ExtractedDataset") -> None:
            bar.close()
            report_extraction(extraction, extracted)

        callbacks = Callbacks(
            bar.update,
            on_extracted,
            lambda fitted: report_fit(fitted.gaussians, verbose=verbose),
        )
        return score_dataset(extraction, scoring, callbacks).scores


def report_scores(summary: "ScoreSummary", out: Path) -> None:
    """Prints the hardest and the easiest samples, the warnings, and where the file is."""
    ends = {"hardest": summary.hardest[:SHOWN], "easiest": summary.easiest[-SHOWN:]}
    for title, rows in ends.items():
        console.print(f"\n{title}:")
        cells = [tuple(row.values()) for row in rows.to_pylist()]
        print_table(("sample", "class", "difficulty"), cells)
    console.print()
    print_warnings(summary.warnings)
    console.print(
        f"{summary.num_scored:,} of {summary.num_samples:,} samples are scored in {out}",
        markup=False,
    )
