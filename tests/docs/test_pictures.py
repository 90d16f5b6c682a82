"""The pictures of the pages are those of this code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .pages import DOCS

pytest.importorskip("trio")


def test_the_pictures_are_drawn_from_this_code(tmp_path: Path) -> None:
    # In a process of its own: a clock that jumps takes a busy machine's pause for nothing.
    program = "import pictures, sys, pathlib; pictures.PICTURES = pathlib.Path(sys.argv[1]); pictures.main()"
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=DOCS, check=True, timeout=60)
    drawn = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert {"tree.svg", "aborted-batch.svg", "life-of-a-delta.svg"} <= set(drawn)
    assert kept == drawn


@pytest.mark.parametrize("name", sorted(path.name for path in (DOCS / "pictures").glob("*.svg")))
def test_a_picture_has_no_blank_line_which_would_end_it_inside_a_page(name: str) -> None:
    assert "\n\n" not in (DOCS / "pictures" / name).read_text(encoding="utf-8").strip()
