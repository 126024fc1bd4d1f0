"""The names of the class indices of a score file."""

import pyarrow as pa

from difficulty_service.score_file import ScoreFile


def class_names_of(scores: ScoreFile) -> dict[int, str]:
    """Name of each class index that is known, in the order of the indices.

    The rows name the classes that have samples. The other classes of the dataset are named in the
    metadata, which is used if it agrees with the rows: scores against the Gaussians of another
    dataset have the class indices of that one.

    Args:
        scores: Columns `label` and `label_name`, and the provenance.
    """
    pairs = scores.table.select(["label", "label_name"]).set_column(
        1, "label_name", scores.table["label_name"].cast(pa.string())
    )
    distinct = pairs.group_by(["label", "label_name"], use_threads=False).aggregate([])
    used = dict(zip(*(distinct[name].to_pylist() for name in pairs.column_names), strict=True))
    declared = dict(enumerate(scores.provenance.class_names))
    agrees = all(declared.get(label) == name for label, name in used.items())
    return dict(sorted(((declared | used) if agrees else used).items()))
