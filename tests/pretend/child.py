"""A process with pretended GPUs that calls functions for a test.

Started as `python -m tests.pretend.child DRIVER`. Reads the name of a function and its arguments,
and writes what it returned, each as a line of JSON.
"""

import json
import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import TextIO


def main() -> None:
    """Answers until its input ends."""
    # What libraries print goes elsewhere than the answers.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answer_calls(answers)


def answer_calls(answers: TextIO) -> None:
    """Installs the GPUs, then calls what is asked for."""
    import difficulty_service  # noqa: F401 - configures the threads of what is loaded next

    # isort: split
    import torch

    from tests.pretend.cuda import install

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    install(sys.argv[1])
    for line in sys.stdin:
        name, arguments = json.loads(line)
        module, _, function = name.partition(":")
        try:
            answer = {"result": getattr(import_module(module), function)(*arguments)}
        except Exception:  # noqa: BLE001 - the test shows it
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
