"""The features that a finished job keeps beside its scores, by which jobs are compared.

They are as precise as float16, which changes a cosine by less than 0.001. Reading them needs torch,
writing and finding them does not.
"""

import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from api.jobs.files import CONTENTS_FILE, FEATURES_FILE, KIND_FILE
from api.jobs.store import Job
from api.storage.artifacts import Artifacts
from difficulty_service.base.tables import map_arrow, write_arrow
from difficulty_service.features.description import MUST_AGREE, FeatureKind
from difficulty_service.reports.similar import map_vectors, write_features
from difficulty_service.scores.file import read_scores

if TYPE_CHECKING:
    from difficulty_service.features.source import FeatureSource
    from difficulty_service.scoring.splits import Split

CONTENT = "content"


class KeptKind(FeatureKind):
    """What made the features of a job."""

    modality: Literal["image", "text"]
    """What the samples are."""
    leads_to_words: bool
    """Whether they lead to a space that they share with words."""


def write_kept_features(
    folder: Path, store: "FeatureSource", num_rows: int, ids: pa.StringArray | None = None
) -> list[Path]:
    """Writes the features of each row of a score file, what made them and what was read.

    Args:
        ids: As for `write_features`.

    Returns:
        The files; none where no row has features.
    """
    from difficulty_service.backbones.clip_space import leads_to_words

    if not write_features(folder / FEATURES_FILE, store, num_rows, ids):
        return []
    made = store.description
    kind = KeptKind(
        **made.kind(),
        modality="text" if made.noun == "text" else "image",
        leads_to_words=leads_to_words(made.backbone, made.features),
    )
    (folder / KIND_FILE).write_text(json.dumps(kind.to_json()))
    files = [folder / FEATURES_FILE, folder / KIND_FILE]
    contents = _contents(store, ids)
    if contents is not None:
        write_arrow(folder / CONTENTS_FILE, pa.record_batch({CONTENT: contents}))
        files.append(folder / CONTENTS_FILE)
    return files


def _contents(store: "FeatureSource", ids: pa.StringArray | None) -> pa.Array | None:
    """Digest of what each row was read from; None where that is not known of every row."""
    parts = [store.contents(shard) for shard in range(store.num_shards)]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    digests = pa.concat_arrays([each.cast(pa.binary(each.type.byte_width)) for each in known])
    if ids is not None:
        from difficulty_service.scoring.splits import Split

        digests = digests.take(pc.index_in(ids, value_set=Split("", store).sample_ids))
    return None if digests.null_count else digests


def knows_words(artifacts: Artifacts, job: Job) -> bool:
    """Whether the features of a succeeded job share a space with words."""
    try:
        with artifacts.open(job.key(KIND_FILE)) as file:
            return KeptKind.of(json.loads(file.read())).leads_to_words
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class KeptFiles:
    """Local files of a finished job."""

    name: str  # what results call the job
    scores: Path
    features: Path
    kind: Path
    contents: Path | None  # None where it is not known what the samples were read from


def open_split(files: KeptFiles) -> "Split":
    """The samples of a job with their labels and features.

    Raises:
        DamagedFile: A file has changed.
        DifficultyError: A file cannot be read, or no sample has features.
        OSError: A file is gone.
    """
    import torch

    from difficulty_service.features.array_columns import classes_of_names
    from difficulty_service.features.arrays import array_features
    from difficulty_service.scoring.splits import Split

    kind = KeptKind.of(json.loads(files.kind.read_bytes()))
    scores = read_scores(files.scores, ["sample_id", "label_name"])
    ids = scores.table["sample_id"].cast(pa.string()).combine_chunks()
    labels = classes_of_names(scores.table["label_name"].cast(pa.string()))
    with warnings.catch_warnings():
        # Nobody writes to the features, and a mapping that allows it would count as memory.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        vectors = torch.from_numpy(map_vectors(files.features))
    source = array_features(vectors, labels, ids, files.name)
    made = {name: getattr(kind, name) for name in (*FeatureKind.marked(MUST_AGREE), "modality")}
    described = source.description.model_copy(update=made | {"boxes": scores.provenance.boxes})
    digests = None
    if files.contents is not None:
        digests = map_arrow(files.contents)[0][CONTENT]
        if source.positions is not None:
            digests = digests.take(pa.array(source.positions.numpy()))
    return Split(
        files.name,
        replace(source, description=described, digests=digests),
        ignores_labels=scores.provenance.has_clusters,
    )
