"""Every example prints what its page shows, on each backend and as the command that the page prints."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import needs_trio

from .pages import EXAMPLES, shown_examples

NAMES = [str(path.relative_to(EXAMPLES)) for path in shown_examples()]
TUTORIAL = [name for name in NAMES if name.startswith("tutorial")]


def load(path: Path) -> ModuleType:
    """The example as a fresh module; what stands under its ``__main__`` is not run."""
    spec = importlib.util.spec_from_file_location("example_of_the_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.anyio
@pytest.mark.parametrize("name", NAMES)
async def test_an_example_prints_what_its_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    await load(EXAMPLES / name).main()
    assert capsys.readouterr().out == (EXAMPLES / name).with_suffix(".out").read_text(encoding="utf-8")


@needs_trio
@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIAL)
def test_a_program_of_the_tutorial_runs_as_a_command_in_an_empty_folder(name: str, tmp_path: Path) -> None:
    program = tmp_path / Path(name).name
    program.write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (EXAMPLES / name).with_suffix(".out").read_text(encoding="utf-8")
