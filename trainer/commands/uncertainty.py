"""`difficulty uncertainty`: a trained head and features in, an uncertainty for each sample out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from difficulty_service.base.extras import needs_extra
from trainer.commands import Device

if TYPE_CHECKING:
    from trainer.uncertainty.application import Application
    from trainer.uncertainty.head import TrainedHead

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "int8": "int8"}
"""Values of `difficulty extract --precision` by the name of the dtype."""


@needs_extra('"difficulty uncertainty"', "train")
def uncertainty(
    head: Path,
    source: Annotated[str, Parameter("STORE|DATASET")],
    /,
    *,
    out: Path,
    r_auroc: Annotated[bool | None, Parameter(negative="--no-r-auroc")] = None,
    backbone: str | None = None,
    device: Device = "auto",
) -> None:
    """Applies an uncertainty head to features of any samples; larger is more uncertain.

    The head comes from `difficulty train` with uncertainty.epochs in the recipe. Features must be
    of its backbone; images are extracted with it first, into a folder beside the output. Labels,
    also of other classes, serve only R-AUROC: how well uncertainties tell whose nearest neighbour
    is of another class.

    Args:
        head: Run with one head, folder of a seed, head.safetensors, or a published checkpoint
            (.pth.tar) of github.com/mkirchhof/url.
        source: Features, or images as `difficulty extract` takes them.
        out: Parquet file for the uncertainties.
        r_auroc: Compute R-AUROC, which keeps all features in memory; default: for up to 20,000
            samples.
        backbone: Network of a published checkpoint, where that does not name it.
    """
    from difficulty_service.base.devices import current
    from difficulty_service.base.errors import ConfigError
    from difficulty_service.features.array_files import is_array_file
    from difficulty_service.features.description import is_store
    from difficulty_service.features.store import holds_only_shards
    from trainer.training.accelerator import make_accelerator
    from trainer.uncertainty.application import apply_head, require_uncertainty_file_name
    from trainer.uncertainty.head import read_head
    from trainer.uncertainty.published_head import CHECKPOINTS, read_published_head

    require_uncertainty_file_name(out)
    published = head.suffix in CHECKPOINTS
    if backbone is not None and not published:
        raise ConfigError("a head of our own says which backbone it is for", parameter="backbone")
    trained = read_published_head(head, backbone) if published else read_head(head)
    features = source
    folder = Path(source)
    if not (is_store(folder) or holds_only_shards(folder) or is_array_file(folder)):
        features = str(out.with_suffix(".features"))
        _extract(trained, source, features, device)
    with current(device):
        on = make_accelerator(device, "fp32").device
        applied = apply_head(trained, features, out, device=on, r_auroc=r_auroc)
    _report(applied, out)


def _extract(trained: "TrainedHead", source: str, folder: str, device: str) -> None:
    """Extracts features as those of the head, by the command that does it for everybody."""
    from difficulty_service.base.errors import TrainingError
    from difficulty_service.cli import create_app

    kind = trained.features
    if kind.backbone is None:
        raise TrainingError(
            f"{source} holds no features, and the head does not know which backbone made its own",
            "give features of the same backbone",
        )
    options = {
        "--out": folder,
        "--backbone": kind.backbone,
        "--features": kind.features,
        "--precision": PRECISIONS.get(str(kind.precision)),
        "--preprocess": kind.mode,
        "--weights": None if trained.weights is None else str(trained.weights),
        "--device": device,
    }
    known = ((name, value) for name, value in options.items() if value is not None)
    words = [word for option in known for word in option]
    switches = [f"--{name}" for name, value in kind.kind().items() if value is True]
    create_app()(["extract", source, *words, *switches])


def _report(applied: "Application", out: Path) -> None:
    from difficulty_service.cli.console import out as console
    from difficulty_service.cli.console import print_warnings

    console.print(f"{applied.num_samples:,} uncertainties are in {out}")
    print_warnings(applied.warnings)
    found = applied.retrieval
    if found is None:
        return
    console.print(f"nearest neighbours of the same class: {found.recall_at_1:.1%}")
    if found.r_auroc is not None:
        console.print(f"R-AUROC: {found.r_auroc:.3f} (0.5 is chance, 1 is best)")
