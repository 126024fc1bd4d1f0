"""Modules of scripts are one classic script for pages that import nothing."""

import json
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from shutil import which

import pytest

from difficulty_service.pages.scripts import classic_script, module_body
from difficulty_service.reports.writing import REVIEW_SCRIPTS, SCRIPTS

STATIC = files("difficulty_service.pages") / "static"

MODULES = {
    "page.js": '// The first.\n\nexport const ONE = 1, TWO = 2;\nlog("page");\n',
    "shapes.js": """// Shapes.

import { ONE } from "./page.js";

export class Shape { get sides() { return ONE; } }
export async function later() { return 4; }
const own = "export const text = 1; import { x } from y";
export let count = own.length;
log("shapes");
""",
    "last.js": """// What draws.

import { ONE, TWO } from "./page.js";
import {
  Shape,
  later,
} from "./shapes.js";
import "./effect.js";

log(ONE + TWO, new Shape().sides, typeof later);
""",
    "effect.js": 'log("effect");\n',
}


def script_of(modules: Mapping[str, str], *names: str) -> str:
    return classic_script(names, lambda name: modules[name])


@pytest.mark.skipif(which("node") is None, reason="needs Node.js")
def test_the_script_does_what_the_modules_do_each_once_after_what_it_imports() -> None:
    script = script_of(MODULES, "page.js", "last.js")
    program = f"const log = (...what) => console.log(JSON.stringify(what));\n{script}"

    run = subprocess.run(  # noqa: S603 - a program of this test
        [which("node") or "node", "--eval", program], capture_output=True, text=True, check=True
    )

    assert [json.loads(line) for line in run.stdout.splitlines()] == [
        ["page"],
        ["shapes"],
        ["effect"],
        [3, 1, "function"],
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('import { ONE as one } from "./page.js";', "page.js does not export as, one"),
        ('import { THREE } from "./page.js";', "page.js does not export THREE"),
        ('import page from "./page.js";', "'import page from"),
        ('import * as page from "./page.js";', "'import \\* as page"),
        ('import { ONE } from "https://elsewhere/page.js";', "'import { ONE } from"),
        ("export default 3;", "'export default 3;'"),
        ('export { ONE } from "./page.js";', "'export { ONE }"),
    ],
)
def test_imports_and_exports_of_another_form_are_refused(line: str, reason: str) -> None:
    modules = {**MODULES, "wrong.js": f"// Wrong.\n\n{line}\n"}

    with pytest.raises(ValueError, match=rf"wrong\.js: {reason}"):
        script_of(modules, "wrong.js")


@pytest.mark.parametrize("names", [SCRIPTS, REVIEW_SCRIPTS, ("theme.js",)])
def test_the_scripts_of_a_page_have_no_import_left(names: tuple[str, ...]) -> None:
    script = classic_script(names, lambda name: (STATIC / name).read_text("utf-8"))

    bodies = [module_body((STATIC / name).read_text("utf-8")) for name in names]
    assert all(script.count(body) == 1 for body in bodies)
    assert not [line for line in script.splitlines() if line.startswith(("import ", "export "))]
