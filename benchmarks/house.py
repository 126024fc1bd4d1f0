"""Counts what the code is made of: modules, lines, types, small functions, imports, rooms.

Run: python -m benchmarks.house [REVISION ...]

Each revision is a column beside the working tree. A room is a folder of `difficulty_service`; an
arrow goes from a room to each other one that it imports, and the floors are the longest way down
these arrows.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

PRODUCT = ("difficulty_service", "trainer", "api")
SERVICE = PRODUCT[0]
Sources = Mapping[str, str]  # text of each Python file by its path
Node = ast.AST


def read_sources(revision: str | None) -> Sources:
    """The Python files of a revision; None for the working tree."""
    if revision is None:
        paths = _git("ls-files", "*.py").splitlines()
        return {path: _read(path) for path in paths}
    paths = _git("ls-tree", "-r", "--name-only", revision).splitlines()
    return {path: _git("show", f"{revision}:{path}") for path in paths if path.endswith(".py")}


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - paths of git
        return file.read()


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def count(sources: Sources) -> dict[str, int]:
    """The numbers of one revision by what they count."""
    product = {path: text for path, text in sources.items() if path.split("/")[0] in PRODUCT}
    tests = [text for path, text in sources.items() if path.startswith("tests/")]
    nodes = [node for text in product.values() for node in ast.walk(_parsed(text))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    names = Counter(node.name for node in classes)
    rooms, arrows, floors = room_graph(sources)
    return {
        "modules": len(product),
        "lines of product": sum(text.count("\n") for text in product.values()),
        "lines of tests": sum(text.count("\n") for text in tests),
        "classes": len(classes),
        "dataclasses": sum(any(map(_is_dataclass, node.decorator_list)) for node in classes),
        "class names used twice": sum(number > 1 for number in names.values()),
        "private functions used once": len(_used_once(product)),
        "imports inside functions": sum(map(_inner_imports, nodes)),
        "rooms": rooms,
        "arrows": arrows,
        "floors": floors,
    }


def _is_dataclass(decorator: Node) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "dataclass"


def _used_once(product: Sources) -> list[str]:
    """Private functions of modules that one other place of their module names."""
    found = []
    for text in product.values():
        tree = _parsed(text)
        named = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        private = (each for each in tree.body if isinstance(each, ast.FunctionDef))
        found += [
            each.name for each in private if each.name.startswith("_") and named[each.name] == 1
        ]
    return found


def _inner_imports(node: Node) -> int:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    return sum(isinstance(each, ast.Import | ast.ImportFrom) for each in node.body)


def room_graph(sources: Sources) -> tuple[int, int, int]:
    """Number of rooms of the service, of arrows between them, and of floors."""
    below: dict[str, set[str]] = {}
    for path, text in sources.items():
        if path.startswith(f"{SERVICE}/") and path != f"{SERVICE}/__init__.py":
            room = _room(path.removesuffix(".py").replace("/", "."))
            below.setdefault(room, set()).update(set(_imported_rooms(text)) - {room})

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(each) for each in below.get(room, ())), default=0)

    return len(below), sum(map(len, below.values())), max(map(floor, below), default=0)


def _imported_rooms(text: str) -> Iterator[str]:
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
            if node.module == SERVICE:
                modules = [f"{SERVICE}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            modules = [each.name for each in node.names]
        else:
            continue
        yield from (_room(each) for each in modules if each.startswith(f"{SERVICE}."))


def _room(module: str) -> str:
    return module.split(".")[1]


def main() -> None:
    """Prints a table with a column for each revision and one for the working tree."""
    columns = {name: count(read_sources(name)) for name in sys.argv[1:]}
    columns["now"] = count(read_sources(None))
    print("| |", " | ".join(columns), "|")
    print("| --- |", " | ".join("---" for _ in columns), "|")
    for row in columns["now"]:
        values = " | ".join(f"{column[row]:,}" for column in columns.values())
        print(f"| {row} | {values} |")


if __name__ == "__main__":
    main()
