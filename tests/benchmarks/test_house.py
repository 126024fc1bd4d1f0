"""What the code is made of is counted as it is written."""

from benchmarks.house import count

SOURCES = {
    "difficulty_service/__init__.py": "from difficulty_service.low import thing\n",
    "difficulty_service/low/thing.py": (
        "@dataclass(frozen=True)\nclass Thing: ...\nclass Other: ...\n"
    ),
    "difficulty_service/high/user.py": (
        "from difficulty_service.low.thing import Thing\n"
        "def _once(): ...\n"
        "def _twice(): ...\n"
        "def run():\n    import os\n    return _once(), _twice(), _twice()\n"
    ),
    "api/view.py": "class Thing: ...\n",
    "tests/test_thing.py": "def test_it(): ...\n",
}


def test_types_functions_imports_and_rooms_are_counted() -> None:
    assert count(SOURCES) == {
        "modules": 4,
        "lines of product": 11,
        "lines of tests": 1,
        "classes": 3,
        "dataclasses": 1,
        "class names used twice": 1,
        "private functions used once": 1,
        "imports inside functions": 1,
        "rooms": 2,
        "arrows": 1,
        "floors": 2,
    }
