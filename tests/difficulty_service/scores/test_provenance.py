"""The provenance of scores: its bytes in a file, and values of another type."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.base.errors import ScoreFileError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import FittedOn, LabelRuleFit, Provenance

WRITTEN = (
    '{"agnostic_condition": 3.5, "agnostic_intensity": 0.0, "agnostic_rank": 2, '
    '"agnostic_ridge": 0.0, "augment_runs": 0, "backbone": "builtin", '
    '"class_names": ["cat", "d\\u00f6g"], "dataset": "photos", '
    '"dataset_options": {"limit": 6}, "fingerprint": "f0", '
    '"fitted_on": {"dataset": "photos", "fingerprint": "f0", "num_samples": 6}, '
    '"near_duplicates": null, "num_bad_images": 1, "num_doubtful": 0, "num_duplicates": 0, '
    '"num_near_duplicates": null, "num_samples": 6, "num_scored": 5, "products": "float32", '
    '"reliable": true, "schema_version": 2, "shard_size": 4096, "shrinkage": 0, '
    '"suspicion": {"likelihood": null, "ridge": 0.1, "scale": 1.0}, "unit_length": false, '
    '"warnings": [], "within_condition": null, "within_intensity": 0.0, "within_rank": 2, '
    '"within_ridge": 0.01}'
)
"""What version 0.1.0 wrote before the provenance was a class."""

FEATURES = FeatureDescription.of(
    {
        "class_names": ["cat"],
        "num_shards": 1,
        "augment_runs": 0,
        "dataset": "photos",
        "dataset_options": {"limit": 6},
        "fingerprint": "f0",
        "num_samples": 6,
        "shard_size": 4096,
        "backbone": "builtin",
    }
)
COMPUTED = Provenance(
    class_names=("cat", "dög"),
    fitted_on=FittedOn.of_features(FEATURES),
    shrinkage=0,
    products="float32",
    reliable=True,
    unit_length=False,
    within_intensity=0.0,
    within_ridge=0.01,
    within_condition=None,
    within_rank=2,
    agnostic_intensity=0.0,
    agnostic_ridge=0.0,
    agnostic_condition=3.5,
    agnostic_rank=2,
    num_scored=5,
    num_doubtful=0,
    num_duplicates=0,
    near_duplicates=None,
    num_near_duplicates=None,
    num_bad_images=1,
    suspicion=LabelRuleFit(ridge=0.1, scale=1.0, likelihood=None),
    warnings=(),
)
TABLE = pa.table({"sample_id": ["1"], "label": [0], "label_name": ["cat"]})


def metadata_of(path: Path) -> str:
    text: bytes = pq.read_schema(path).metadata[b"difficulty"]
    return text.decode()


def test_the_metadata_of_a_score_file_have_the_same_bytes_as_ever(tmp_path: Path) -> None:
    provenance = Provenance.of_features(FEATURES).updated(COMPUTED)

    write_scores(tmp_path / "s.parquet", TABLE, provenance)

    assert metadata_of(tmp_path / "s.parquet") == WRITTEN


@pytest.mark.parametrize("name", ["s.parquet", "s.csv"])
def test_a_provenance_that_is_read_and_written_stays_the_same(tmp_path: Path, name: str) -> None:
    own = Provenance.of(json.loads(WRITTEN) | {"camera": {"side": "left"}})
    write_scores(tmp_path / name, TABLE, own)

    read = read_scores(tmp_path / name).provenance

    assert read == own
    assert read.to_json()["camera"] == {"side": "left"}


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("num_samples", "six", r"has 'six' as num_samples: .*valid integer"),
        ("fitted_on", "photos", r"has 'photos' as fitted_on: "),
        ("consensus", {"mean_of": "ranks"}, r"lacks the keys \['inputs', 'columns'\]"),
    ],
)
def test_a_value_of_another_type_is_named(
    tmp_path: Path, key: str, value: object, fault: str
) -> None:
    text = json.dumps({"schema_version": 2, key: value})
    path = tmp_path / "s.parquet"
    write_scores(path, TABLE, Provenance())
    pq.write_table(pq.read_table(path).replace_schema_metadata({"difficulty": text}), path)

    with pytest.raises(ScoreFileError, match=rf"the provenance of .*s\.parquet {fault}"):
        read_scores(path)
