"""`difficulty fit`: a folder of features in, Gaussians out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from difficulty_service.commands.console import out as console
from difficulty_service.commands.console import print_warnings
from difficulty_service.commands.options import (
    Force,
    MatmulDtype,
    MatmulDtypeName,
    ShrinkageName,
    StorePath,
    parse_shrinkage,
)

if TYPE_CHECKING:
    from difficulty_service.statistics.gaussian import Gaussians


def fit(
    store: StorePath,
    out: Annotated[Path, typer.Option(help="Safetensors file to write.")],
    shrinkage: ShrinkageName = "auto",
    matmul_dtype: MatmulDtypeName = MatmulDtype.AUTO,
    force: Force = False,
) -> None:
    """Fits a Gaussian per class, with one shared covariance, and one without labels."""
    from difficulty_service.feature_store.store import open_store
    from difficulty_service.scoring.fit_store import fit_store
    from difficulty_service.statistics.fit_options import FitOptions
    from difficulty_service.statistics.gaussian_file import save_gaussians

    intensity = parse_shrinkage(shrinkage)
    opened = open_store(store)
    options = FitOptions(intensity, matmul_dtype.value, opened.runs, force)
    gaussians = fit_store(opened, options)
    save_gaussians(out, gaussians, opened.description)
    print_fit(gaussians)
    print_warnings(gaussians.warnings)
    console.print(f"Gaussians are in {out}", markup=False)


def print_fit(gaussians: "Gaussians") -> None:
    """How the covariances came out."""
    moments = gaussians.moments
    console.print(
        f"fitted to {moments.num_samples:,} rows, {int((moments.counts > 0).sum())} classes, "
        f"{moments.dim} dimensions, products in "
        f"{gaussians.options.matmul_dtype}"
    )
    for name, factor in (("within classes", gaussians.within), ("of all", gaussians.agnostic)):
        console.print(
            f"covariance {name}: condition number {factor.condition:.2g}, rank {factor.rank}, "
            f"shrinkage {factor.intensity:.2g}"
        )
