"""`difficulty merge`: features or Gaussians that were made apart, joined."""

from pathlib import Path
from typing import Annotated

import typer

from difficulty_service.commands.console import out as console
from difficulty_service.commands.console import print_warnings
from difficulty_service.commands.fit import print_fit


def merge(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="STORE...|GAUSSIANS...",
            help="Folders made by `difficulty extract --shard`, or files made by `difficulty fit`.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder or safetensors file to write.")],
) -> None:
    """Joins the shares of a feature store, or the Gaussians of several datasets.

    Shares must be of one dataset and made alike; Gaussians must be of the same classes and kind of
    features. What differs is named.
    """
    if all(path.is_dir() for path in inputs):
        merge_folders(inputs, out)
    else:
        merge_files(inputs, out)


def merge_folders(folders: list[Path], out: Path) -> None:
    """Joins shares of a store."""
    from difficulty_service.merging import merge_stores

    store = merge_stores(folders, out)
    console.print(f"{store.num_parts:,} parts of {len(folders)} stores are in {out}", markup=False)


def merge_files(files: list[Path], out: Path) -> None:
    """Joins Gaussians."""
    from difficulty_service.merging import merge_gaussians
    from difficulty_service.statistics.gaussian_file import save_gaussians

    gaussians, description = merge_gaussians(files)
    save_gaussians(out, gaussians, description)
    print_fit(gaussians)
    print_warnings(gaussians.warnings)
    console.print(f"Gaussians are in {out}", markup=False)
