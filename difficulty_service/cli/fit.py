"""`difficulty fit`: features in, Gaussians out."""

from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.base.wording import count_of
from difficulty_service.cli.console import out as console
from difficulty_service.cli.console import print_warnings
from difficulty_service.settings.options import FittingOptions, VerboseOption

if TYPE_CHECKING:
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians


def fit(
    store: Path,
    /,
    *,
    out: Path,
    fitting: FittingOptions = FittingOptions(),
    output: VerboseOption = VerboseOption(),
) -> None:
    """Fits a Gaussian per class, with one shared covariance, and one without labels.

    Args:
        store: What `difficulty extract` wrote, or features in .npz, .npy or Parquet.
        out: Safetensors file to write.
    """
    from difficulty_service.features.array_files import open_features
    from difficulty_service.scoring.fit_store import fit_store
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians

    FittedGaussians.require_file_name(out)
    write_fit(fit_store(open_features(store), fitting.fit), out, verbose=output.verbose)


def write_fit(fitted: "FittedGaussians", out: Path, *, verbose: bool) -> None:
    """Writes Gaussians, and prints what they were fitted to and where they are."""
    fitted.save(out)
    report_fit(fitted, verbose=verbose)
    print_warnings(fitted.warnings)
    console.print(f"Gaussians are in {out}")


def report_fit(fitted: "FittedGaussians", *, verbose: bool) -> None:
    """Prints what the Gaussians were fitted to, and with `verbose` how the covariances came out."""
    gaussians = fitted.gaussians
    moments, options = gaussians.moments, gaussians.options
    samples = f"{fitted.description.noun}s"
    num_images, num_classes = moments.num_samples // options.runs, int((moments.counts > 0).sum())
    classes = count_of(num_classes, "class", "classes")
    console.print(f"fitted to {num_images:,} {samples} of {classes}")
    if not verbose:
        return
    console.print(
        f"{moments.num_samples:,} rows of {moments.dim:,} dimensions, matrix products in "
        f"{options.matmul_dtype}"
    )
    for name, factor in (("within classes", gaussians.within), ("of all", gaussians.agnostic)):
        console.print(f"covariance {name}: {factor.summary}")
