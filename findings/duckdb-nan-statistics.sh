#!/bin/sh
# duckdb 2.0.1, pyarrow 26.0.1: NaN in a Parquet file whose statistics leave it out, as Arrow writes them.
#
# Guess, before it was run: conditions find the same rows as in a table, since readers may not take
# the least and the greatest number of a column for those of all its cells where these may be NaN.
# Seen: with such statistics no cell is NaN to a condition, and every one is at most the greatest
# number; without them DuckDB finds NaN, which it takes for greater than any number.
#
# Output:
#   in a table: isnan 1, x > 100 1, x <= 100 2
#   with statistics: isnan 0, x > 100 0, x <= 100 3
#   without statistics: isnan 1, x > 100 1, x <= 100 2
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
cat > run.py <<'PYTHON'
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

numbers = pa.table({"x": [1.0, float("nan"), 2.0]})
pq.write_table(numbers, "with.parquet")
pq.write_table(numbers, "without.parquet", write_statistics=False)
places = {
    "in a table": "numbers",
    "with statistics": "'with.parquet'",
    "without statistics": "'without.parquet'",
}
duckdb.register("numbers", numbers)
lines = []
for name, place in places.items():
    found = [
        f"{condition.partition('(')[0]} "
        f"{duckdb.sql(f'select count(*) from {place} where {condition}').fetchall()[0][0]}"
        for condition in ("isnan(x)", "x > 100", "x <= 100")
    ]
    lines.append(f"{name}: {', '.join(found)}")
print("\n".join(lines))
expected = [
    "in a table: isnan 1, x > 100 1, x <= 100 2",
    "with statistics: isnan 0, x > 100 0, x <= 100 3",
    "without statistics: isnan 1, x > 100 1, x <= 100 2",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
