"""`difficulty merge`: joins features or Gaussians of several runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from difficulty_service.cli.console import out as console
from difficulty_service.cli.fit import write_fit
from difficulty_service.settings.options import VerboseOption


def merge(
    inputs: Annotated[list[Path], Parameter("STORE...|GAUSSIANS...")],
    /,
    *,
    out: Path,
    output: VerboseOption = VerboseOption(),
) -> None:
    """Joins the shards of a feature store, or the Gaussians of several datasets.

    Shards must come from one dataset with the same settings, Gaussians from the same classes and
    kind of features.

    Args:
        inputs: Folders made by `difficulty extract --shard`, or files made by `difficulty fit`.
        out: Folder or safetensors file to write.
    """
    if all(path.is_dir() for path in inputs):
        from difficulty_service.features.merging import merge_stores

        store = merge_stores(inputs, out)
        shards = f"{store.num_shards:,} shards of {len(inputs)} stores"
        console.print(f"{shards} are in {out}")
        return
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians, merge_gaussians

    FittedGaussians.require_file_name(out)
    write_fit(merge_gaussians(inputs), out, verbose=output.verbose)
