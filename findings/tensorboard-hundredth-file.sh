#!/bin/sh
# tensorboard 2.21.0: a run whose process began other runs before, was stopped and resumed at once.
#
# Guess, before it was run: the two files of the run are read in the order in which they began, so
# that step 3 has the value that was logged after resuming, wherever the process counts them.
# Seen: names end in a count without leading zeros and are sorted as text. If both files begin in one
# second and the second one is number 100 of its process, it is read first: what resuming should have
# replaced stays, and comes last. Only a line of the log says that steps are out of order. The server
# shows the replaced value, with either of its loaders.
#
# Output:
#   files 0 and 1: 1: 1.0, 2: 2.0, 3: 30.0, 4: 40.0
#   files 99 and 100: 3: 30.0, 4: 40.0, 1: 1.0, 2: 2.0, 3: 3.0
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tensorboard==2.21.0
cd "$folder"
cat > run.py <<'PYTHON'
import logging
import sys
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

logging.getLogger("tensorboard").setLevel(logging.ERROR)


def log(folder, losses, first_step=None):
    writer = EventFileWriter(folder)
    if first_step is not None:
        session = SessionLog(status=SessionLog.START)
        writer.add_event(Event(wall_time=time.time(), step=first_step, session_log=session))
    for step, loss in losses.items():
        value = Summary.Value(tag="loss", simple_value=loss)
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.close()


def resumed_run(folder):
    while time.time() % 1 > 0.2:  # both files begin in one second
        time.sleep(0.01)
    log(folder, {1: 1.0, 2: 2.0, 3: 3.0})
    log(folder, {3: 30.0, 4: 40.0}, first_step=3)
    events = EventAccumulator(folder)
    events.Reload()
    return ", ".join(f"{each.step}: {each.value}" for each in events.Scalars("loss"))


lines = [f"files 0 and 1: {resumed_run('first')}"]
for number in range(97):
    EventFileWriter(f"other/{number}").close()
lines.append(f"files 99 and 100: {resumed_run('later')}")
print("\n".join(lines))
expected = [
    "files 0 and 1: 1: 1.0, 2: 2.0, 3: 30.0, 4: 40.0",
    "files 99 and 100: 3: 30.0, 4: 40.0, 1: 1.0, 2: 2.0, 3: 3.0",
]
sys.exit(lines != expected)
PYTHON
"$folder/venv/bin/python" run.py
