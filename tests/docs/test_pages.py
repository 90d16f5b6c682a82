"""The pages show tested code only, and every example stands on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cubepi_anyio

from .pages import DOCS, EXAMPLES, includes_of, pages, shown_examples

CODE_BLOCK = re.compile(r"^ *```\{?\.?(python|text)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PACKAGE = Path(cubepi_anyio.__file__).parent
PAGES = [str(page.relative_to(DOCS)) for page in pages()]


@pytest.mark.parametrize("name", PAGES)
def test_a_code_block_is_a_file_that_tests_run(name: str) -> None:
    by_hand = [
        body.strip()
        for _, body in CODE_BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
        if not re.fullmatch(r'(?:--8<-- "docs/examples/[^"]+"\s*)+', body.strip())
    ]
    assert by_hand == []


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_includes_is_there(name: str) -> None:
    assert [each for each in includes_of(DOCS / name) if not (EXAMPLES / each).is_file()] == []


@pytest.mark.parametrize("name", PAGES)
def test_an_example_is_followed_by_its_output(name: str) -> None:
    shown = includes_of(DOCS / name)
    lonely = [
        each
        for each in shown
        if each.endswith(".py") and not each.startswith("programs/") and f"{each[:-3]}.out" not in shown
    ]
    assert lonely == []


def test_every_example_stands_on_a_page() -> None:
    shown = {each for page in pages() for each in includes_of(page)}
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py"}
    assert there - shown == set()


def test_no_output_is_left_without_its_example() -> None:
    outputs = {path.with_suffix(".py") for path in EXAMPLES.rglob("*.out")}
    assert outputs >= set(shown_examples())
    assert [str(path) for path in outputs if not path.exists()] == []


def test_every_page_can_be_reached() -> None:
    navigation = (DOCS / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in PAGES if name not in navigation] == []


def test_a_page_is_named_once() -> None:
    titles = [Path(page).read_text(encoding="utf-8").split("\n", 1)[0] for page in pages()]
    assert len(set(titles)) == len(titles)
    assert all(title.startswith("# ") for title in titles)


# --- the page of the ladder ------------------------------------------------------------------

MODULES = re.compile(r"^\| (`[^|]*`) \| \S", re.MULTILINE)


def modules_on_the_page() -> dict[str, set[str]]:
    """What the page of the ladder says stands in each of the larger rooms."""
    _, _, rooms = (
        (DOCS / "design" / "ladder.md").read_text(encoding="utf-8").partition("\n## Inside the larger rooms\n")
    )
    found: dict[str, set[str]] = {}
    for table in re.split(r"\n\n(?=\| )", rooms)[1:]:
        head, _, rows = table.partition("\n")
        names = {name for cell in MODULES.findall(rows) for name in re.findall(r"`([\w/]+)`", cell)}
        found[" ".join(re.findall(r"`(\w+)`", head))] = names
    return found


def modules_of(room: str) -> set[str]:
    """The modules and the folders of a room."""
    folder = PACKAGE / room
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("room", ["stream", "providers", "tools", "agent"])
def test_a_module_that_the_ladder_names_is_there(room: str) -> None:
    assert modules_on_the_page()[room] - modules_of(room) == set()


def test_the_ladder_names_every_module_of_the_agent() -> None:
    assert modules_of("agent") - modules_on_the_page()["agent"] == set()


def test_a_folder_that_the_ladder_names_is_there() -> None:
    folders = modules_on_the_page()["testing cli"]
    assert folders >= {"testing/sweeps", "cli/demo"}
    assert [folder for folder in folders if not (PACKAGE / folder / "__init__.py").is_file()] == []
