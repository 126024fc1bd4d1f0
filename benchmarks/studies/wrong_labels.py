"""How well the number of wrong labels is estimated where the right labels are known.

    python -m benchmarks.studies.wrong_labels STORE 'TABLES' ID_COLUMN LABEL_COLUMN

The store has the features of a dataset whose labels are partly wrong; the tables have the right
ones.
A review of 300 samples with a margin above 0 is simulated a thousand times.
"""

import sys
from pathlib import Path

import numpy as np

from difficulty_service.features.store import open_store
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.reports.label_flips import flip_and_score
from difficulty_service.reports.wrong_labels import estimate_cuts, number_of_wrong_labels
from difficulty_service.scores.joined_files import read_columns

REVIEWED, REVIEWS = 300, 1000


def main(folder: str, tables: str, id_column: str, label_column: str) -> None:
    """Prints what is found at each cut, and how often the interval covers the truth."""
    store = open_store(Path(folder))
    right = read_columns(tables, [id_column, label_column], text_columns=[id_column])
    ids = [str(each) for each in right[id_column].to_pylist()]
    label_of = dict(zip(ids, right[label_column].to_pylist(), strict=True))
    shards = [store.open_shard(shard, ["sample_id"]) for shard in range(store.num_shards)]
    given = {
        sample_id: label
        for each in shards
        for sample_id, label in zip(each.sample_ids.to_pylist(), each.labels.tolist(), strict=True)
    }
    flipped = flip_and_score(store, FitOptions())
    wrong = np.array([label_of[each] != given[each] for each in flipped.sample_ids])
    print(f"{wrong.sum():,} of {len(wrong):,} labels are wrong")
    for each in estimate_cuts(flipped, {}):
        found = (flipped.margins > each.cut)[wrong].mean()
        print(
            f"margin above {each.cut:g}: {each.num_above:,} samples, {found:.1%} of wrong labels, "
            f"{each.at_random.share:.1%} of random flips, {each.confused.share:.1%} of similar ones"
        )
    above = np.flatnonzero(flipped.margins > 0)
    intervals = []
    for seed in range(REVIEWS):
        rows = np.random.default_rng(seed).choice(above, REVIEWED, replace=False)
        reviewed = {flipped.sample_ids[row]: bool(wrong[row]) for row in rows}
        intervals.append(number_of_wrong_labels(estimate_cuts(flipped, reviewed)[0], seed))
    lows, highs = np.array(intervals).T
    covered = ((lows <= wrong.sum()) & (wrong.sum() <= highs)).mean()
    print(f"first interval: {lows[0]:,.0f} to {highs[0]:,.0f}")
    print(f"mean interval: {lows.mean():,.0f} to {highs.mean():,.0f}, covers {covered:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
