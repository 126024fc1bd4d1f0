"""Scores and images as a dataset of the Hugging Face hub: Parquet, and a card that describes it."""

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.wording import count_of
from difficulty_service.cleaning.exports.hugging_face import rows_of
from difficulty_service.cleaning.exports.samples import Exported
from difficulty_service.pages.cards import dataset_name
from difficulty_service.pages.origin import describe_provenance
from difficulty_service.pages.stored_images import ImageSource, MissingImages
from difficulty_service.reports.map_points import tier_names
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import ScoredSamples, to_samples
from difficulty_service.scores.score_columns import COLUMNS

CARD, DATA = "README.md", "data"
BYTES_OF_A_FILE = 500_000_000
"""About how large a Parquet file of the dataset is."""

TAGS = ("dataset-difficulty", "label-errors", "data-cleaning")
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
"""Limits between the categories of sizes of the hub."""

LOAD = """\
```python
import datasets

dataset = datasets.load_dataset("USER/NAME", split="train")  # or the path of this folder
```
"""


def write_hub(scores: ScoreFile, images: ImageSource, folder: Path, final: Path) -> Exported:
    """Writes `data/*.parquet` and `README.md`, as `datasets.load_dataset` opens them."""
    missing = MissingImages()
    (folder / DATA).mkdir()
    with rows_of(scores, images, folder.parent, missing) as dataset:
        number = max(1, math.ceil(dataset.data.nbytes / BYTES_OF_A_FILE))
        for part in range(number):
            rows = dataset.shard(number, part, contiguous=True)
            rows.to_parquet(folder / DATA / f"train-{part:05d}-of-{number:05d}.parquet")
        names, length = dataset.column_names, len(dataset)
    card = describe(scores, names, length, "text" if images.is_text else "image")
    (folder / CARD).write_text(card, "utf-8")
    upload = f"hf upload USER/NAME {shlex.quote(str(final))} --repo-type dataset"
    return Exported(missing.warnings(), [f"to upload it: {upload}"])


def describe(scores: ScoreFile, columns: Sequence[str], num_rows: int, kind: str) -> str:
    """The card of a dataset: metadata for the hub, and text for people.

    Of locations it has the last part only, without what may be private in the others.
    """
    from huggingface_hub import DatasetCardData

    provenance, samples = _public(scores.provenance), to_samples(scores)
    name = dataset_name(provenance.dataset or "dataset")
    metadata = DatasetCardData(
        pretty_name=f"{name} with difficulty scores",
        task_categories=[f"{kind}-classification"] if samples.has_labels else None,
        size_categories=_size(num_rows),
        tags=list(TAGS),
        configs=[
            {
                "config_name": "default",
                "data_files": [{"split": "train", "path": f"{DATA}/train-*"}],
            }
        ],
    )
    facts = [fact for group in describe_provenance(provenance) for fact in group]
    described = [(f"`{each}`", *_meaning(each, kind)) for each in columns]
    parts = [
        f"---\n{metadata.to_yaml()}\n---",
        f"# {name} with difficulty scores",
        f"The {kind}s of {name}, {count_of(num_rows, 'row')}, with scores of how hard each of them "
        "is. Larger is harder in every column of scores.",
        f"## Load\n\n{LOAD}",
        *_tiers(samples),
        "## Columns\n\n" + _table(("column", "values", "meaning"), described),
        "## Origin of the scores\n\n" + _table(("", ""), facts),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _public(provenance: Provenance) -> Provenance:
    """The provenance without the folders of its locations."""
    fitted, predictions = provenance.fitted_on, provenance.predictions
    shorter: dict[str, object] = {}
    if provenance.dataset:
        shorter["dataset"] = dataset_name(provenance.dataset)
    if fitted is not None and fitted.dataset:
        shorter["fitted_on"] = fitted.model_copy(update={"dataset": dataset_name(fitted.dataset)})
    if predictions is not None:
        run = dataset_name(predictions.run)
        shorter["predictions"] = predictions.model_copy(update={"run": run})
    return provenance.model_copy(update=shorter)


def _size(number: int) -> str:
    """The category of sizes of the hub."""
    words = ["1K", "10K", "100K", "1M", "10M", "100M"]
    above = sum(number >= limit for limit in SIZES)
    if above == 0:
        return f"n<{words[0]}"
    return f"{words[above - 1]}<n<{words[above]}" if above < len(words) else "100M<n<1B"


def _tiers(samples: ScoredSamples) -> list[str]:
    """How many labels are in each tier; nothing where labels are not compared."""
    if not (samples.has_labels and samples.compares_classes):
        return []
    rows = [
        (name, f"{int((samples.tiers == tier).sum()):,}")
        for tier, name in enumerate((*tier_names(samples), "not judged"))
    ]
    sentence = "" if samples.label_counts is None else f"\n\n{samples.label_counts}"
    return ["## Labels\n\n" + _table(("label", "scored samples"), rows) + sentence]


def _meaning(column: str, kind: str) -> tuple[str, str]:
    """Values and meaning of a column."""
    if column not in COLUMNS:
        return kind, f"The {kind} as it was scored."
    return COLUMNS[column].values, COLUMNS[column].sentence


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = (header, ["---"] * len(header), *rows)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def push(folder: Path, name: str) -> str:
    """Uploads a folder as a dataset of the hub, by the token of this machine; gives its address.

    A dataset that does not exist is created as a private one; others stay as they are.

    Raises:
        CleaningError: There is no valid token, the name is none of the hub, or the hub refuses.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    try:
        created = api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        api.upload_folder(
            repo_id=created.repo_id,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Add difficulty scores",
        )
    except (OSError, HTTPError, HfHubHTTPError, HFValidationError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        again = f"hf upload {shlex.quote(name)} {shlex.quote(str(folder))} --repo-type dataset"
        raise CleaningError(
            f"the folder {folder} is written, but cannot be uploaded as {name}: {reason}",
            f"check the name USER/NAME, log in with: hf auth login; then upload with: {again}",
            parameter="push",
        ) from error
    return str(created)
