"""What tests of several wire formats need around them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cubepi_anyio.providers.openai_chat import PRESETS
from tests.recordings import Replay, replay_server


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replay_server() as server:
        yield server


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the keys, addresses and headers of OpenAI and of all who imitate it that the machine may have."""
    for preset in PRESETS.values():
        for variable in (preset.key_variable, preset.base_url_variable, *preset.header_variables.values()):
            if variable:
                monkeypatch.delenv(variable, raising=False)
