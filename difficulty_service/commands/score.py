"""`difficulty score`: a dataset or its features in, `scores.parquet` out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from difficulty_service.commands.console import out as console
from difficulty_service.commands.console import print_table, print_warnings
from difficulty_service.commands.extract import build_request, run_extract
from difficulty_service.commands.extraction import OPTION_NAMES, Extraction, takes_extraction
from difficulty_service.commands.options import (
    Force,
    MatmulDtype,
    MatmulDtypeName,
    ShrinkageName,
    parse_shrinkage,
)

if TYPE_CHECKING:
    from difficulty_service.feature_store.store import FeatureStore
    from difficulty_service.scoring.score_store import Scored
    from difficulty_service.statistics.gaussian import Gaussians

SCORERS = ("rmd", "kmeans", "knn")
SHOWN = 5


@takes_extraction
def score(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="STORE|DATASET", help="Features, or a dataset to extract.")
    ],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    gaussians: Annotated[
        Path | None, typer.Option(help="Score against Gaussians fitted elsewhere.")
    ] = None,
    scorers: Annotated[str, typer.Option(help="Of rmd, kmeans, knn, with commas between.")] = "rmd",
    shrinkage: ShrinkageName = "auto",
    matmul_dtype: MatmulDtypeName = MatmulDtype.AUTO,
    force: Force = False,
    *,
    extraction: Extraction,
) -> None:
    """Scores how hard each sample is; larger is harder.

    Given a dataset, the features are extracted first and kept in a folder beside the output, so
    that a second run with other statistics touches no image.
    """
    wanted = parse_scorers(scorers)
    intensity = parse_shrinkage(shrinkage)
    # Whatever scoring needs is looked for now, not after the hours that extraction may take.
    fitted = load_needed(gaussians, wanted)
    store = find_store(context, source, out, extraction, fitted)
    scored = score_and_write(
        store, out, fitted, wanted, fit_options=(intensity, matmul_dtype.value, force)
    )
    report(scored, out)


def parse_scorers(text: str) -> list[str]:
    """The scorers asked for.

    Raises:
        BadParameter: One of them is unknown.
    """
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(SCORERS))
    if unknown or not wanted:
        raise typer.BadParameter(
            f"unknown scorers {unknown}; expected some of {', '.join(SCORERS)}",
            param_hint="--scorers",
        )
    return wanted


def load_needed(
    gaussians_file: Path | None, scorers: list[str]
) -> "tuple[Gaussians, Mapping[str, Any]] | None":
    """The Gaussians and the description of what they were fitted to, if a file is given.

    Raises:
        StatisticsError: It is no file of Gaussians.
        MissingPackage: A scorer needs faiss, which is not installed.
    """
    from difficulty_service.scorers.faiss_package import load_faiss
    from difficulty_service.statistics.gaussian_file import load_gaussians

    if {"kmeans", "knn"} & set(scorers):
        load_faiss()
    return None if gaussians_file is None else load_gaussians(gaussians_file)


def find_store(
    context: typer.Context,
    source: str,
    out: Path,
    extraction: Extraction,
    fitted: "tuple[Gaussians, Mapping[str, Any]] | None",
) -> "FeatureStore":
    """Opens the store given, or extracts the dataset given into one beside the output.

    Raises:
        BadParameter: Options of extraction were given for a store, which has no use for them.
    """
    from difficulty_service.feature_store.store import is_store, open_store

    if not is_store(Path(source)):
        request = build_request(source, out.with_suffix(".features"), extraction)
        return run_extract(replace(request, fitted_on=fitted[1] if fitted else None)).store
    useless = [
        f"--{name.replace('_', '-')}"
        for name in OPTION_NAMES
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    ]
    if useless:
        raise typer.BadParameter(
            f"{source} holds features already, so {', '.join(useless)} would change nothing"
        )
    return open_store(Path(source))


def score_and_write(
    store: "FeatureStore",
    out: Path,
    fitted: "tuple[Gaussians, Mapping[str, Any]] | None",
    scorers: list[str],
    fit_options: tuple[Any, str, bool],
) -> "Scored":
    """Fits Gaussians where none are given, scores, and writes the file."""
    from difficulty_service.commands.fit import print_fit
    from difficulty_service.scoring.fit_store import fit_store, write_store_scores
    from difficulty_service.statistics.fit_options import FitOptions

    if fitted is None:
        shrinkage, matmul_dtype, force = fit_options
        gaussians = fit_store(store, FitOptions(shrinkage, matmul_dtype, store.runs, force))
        print_fit(gaussians)
        fitted_on = store.description
    else:
        gaussians, fitted_on = fitted
    return write_store_scores(store, out, gaussians, dict(fitted_on), scorers)


def report(scored: "Scored", out: Path) -> None:
    """Prints the hardest and the easiest samples, what to beware of, and where the file is."""
    from difficulty_service.score_file import extremes

    columns = ("sample_id", "label_name", "rmd")
    for title, rows in extremes(out, SHOWN).items():
        console.print(f"\n{title}:")
        print_table(columns, list(zip(*(rows[name].to_pylist() for name in columns), strict=True)))
    console.print()
    print_warnings(scored.warnings)
    console.print(
        f"{scored.num_scored:,} of {scored.num_samples:,} samples are scored in {out}",
        markup=False,
    )
