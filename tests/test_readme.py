"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import needs_trio

README = Path(__file__).resolve().parents[1] / "README.md"


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@needs_trio
def test_the_first_agent_of_the_readme_says_the_same_on_both_backends(tmp_path: Path) -> None:
    program = tmp_path / "first_agent.py"
    program.write_text(_python_blocks()[0], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    on_trio, on_asyncio = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert on_trio == on_asyncio
    assert on_trio[-2:] == ["agent_end", "completed Three results about Python."]
    assert on_trio.count("tool_execution_end") == 1


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_commands_of_the_readme_are_targets_of_the_makefile(target: str) -> None:
    assert f"make {target} " in README.read_text(encoding="utf-8")
    makefile = README.with_name("Makefile")
    if not makefile.exists():
        pytest.skip("the Makefile is not beside the tests of the wheel")
    assert re.search(rf"^{target}:", makefile.read_text(encoding="utf-8"), re.MULTILINE)
