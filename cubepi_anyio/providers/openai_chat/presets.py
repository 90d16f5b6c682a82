"""The vendors that speak Chat Completions, as data: where they are, and in what they differ from OpenAI.

Each line holds what the vendor's own API reference says; a vendor that is not here is a ``Preset`` of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

__all__ = ("PRESETS", "Preset", "Quirks")

_OPENAI_SETTINGS = MappingProxyType(
    {
        "top_p": "top_p",
        "stop": "stop",
        "seed": "seed",
        "parallel_tool_calls": "parallel_tool_calls",
        "service_tier": "service_tier",
        "cache_key": "prompt_cache_key",
        "verbosity": "verbosity",
        "user": "user",
    }
)
_COMMON_SETTINGS = MappingProxyType({name: name for name in ("top_p", "stop", "seed", "parallel_tool_calls", "user")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """In what a vendor's dialect differs. The defaults are OpenAI's own."""

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    settings_fields: Mapping[str, str] = field(default_factory=lambda: _OPENAI_SETTINGS)
    """The settings the vendor has, and the names of their fields; others are refused. ``temperature`` and the most
    tokens have ways of their own."""
    stream_usage: bool = True
    """Whether ``stream_options.include_usage`` is understood; without it some report usage all the same."""
    reasoning_request: Literal["effort", "openrouter", "thinking", "template"] = "effort"
    """How thinking is asked for: ``reasoning_effort``, OpenRouter's ``reasoning``, DeepSeek's ``thinking``, or the
    chat template's ``enable_thinking`` of local servers."""
    reasoning_takes_temperature: bool = False
    """Whether a request to a reasoning model may say a temperature."""
    reasoning_replay: Literal["none", "reasoning_content", "reasoning_details", "content_parts"] = "none"
    """In which form the vendor wants its own thinking back."""
    reasoning_counted_apart: bool = False
    """Whether reasoning tokens come on top of ``completion_tokens``, in which OpenAI includes them."""
    document_url: Literal["none", "file", "document_url"] = "none"
    """How a document is sent by its address."""
    response_schema: bool = True
    """Whether all current models of the vendor keep to a JSON Schema given as ``response_format``."""
    user_after_tool: bool = True
    """Whether a user may speak directly after a tool's result; if not, the model is given a word between them."""
    call_id_pattern: str = r".{1,40}"
    """What ids of calls must look like (a regular expression); others are replaced by ``call_id_length`` letters."""
    call_id_length: int = 40


_COMPATIBLE = Quirks(
    max_tokens_field="max_tokens",
    settings_fields=_COMMON_SETTINGS,
    reasoning_takes_temperature=True,
    response_schema=False,
)
_WITH_TOP_K = MappingProxyType({**_COMMON_SETTINGS, "top_k": "top_k"})
_LOCAL = replace(_COMPATIBLE, reasoning_request="template", settings_fields=_WITH_TOP_K)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Where a vendor is and how it is spoken to."""

    provider_id: str
    base_url: str
    """Empty where every customer has an address of their own."""
    key_variable: str
    """The environment variable that holds the key."""
    needs_key: bool = True
    base_url_variable: str = ""
    auth_header: Literal["authorization", "api-key"] = "authorization"
    """Where the key goes: ``authorization`` as a bearer token, ``api-key`` bare."""
    path: str = "/chat/completions"
    """Appended to the base URL; ``{model}`` is the model's id."""
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    header_variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Headers that are sent if their environment variables are set."""
    quirks: Quirks = _COMPATIBLE


_ALL = (
    Preset(
        provider_id="openai",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        base_url_variable="OPENAI_BASE_URL",
        header_variables=MappingProxyType(
            {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
        ),
        quirks=Quirks(),
    ),
    Preset(
        provider_id="azure",
        base_url="",
        base_url_variable="AZURE_OPENAI_ENDPOINT",
        key_variable="AZURE_OPENAI_API_KEY",
        auth_header="api-key",
        path="/openai/deployments/{model}/chat/completions",
        query=MappingProxyType({"api-version": "2024-10-21"}),
        quirks=Quirks(),
    ),
    Preset(
        provider_id="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        quirks=replace(
            _COMPATIBLE,
            reasoning_request="openrouter",
            reasoning_replay="reasoning_details",
            document_url="file",
            settings_fields=MappingProxyType({**_WITH_TOP_K, "verbosity": "verbosity"}),
        ),
    ),
    Preset(
        provider_id="deepseek",
        base_url="https://api.deepseek.com",
        key_variable="DEEPSEEK_API_KEY",
        quirks=replace(_COMPATIBLE, reasoning_request="thinking", reasoning_replay="reasoning_content"),
    ),
    Preset(
        provider_id="groq",
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        quirks=replace(
            _COMPATIBLE,
            max_tokens_field="max_completion_tokens",
            settings_fields=MappingProxyType({**_COMMON_SETTINGS, "service_tier": "service_tier"}),
        ),
    ),
    Preset(
        provider_id="mistral",
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        quirks=replace(
            _COMPATIBLE,
            settings_fields=MappingProxyType(
                {
                    "top_p": "top_p",
                    "stop": "stop",
                    "seed": "random_seed",
                    "parallel_tool_calls": "parallel_tool_calls",
                }
            ),
            stream_usage=False,
            reasoning_replay="content_parts",
            document_url="document_url",
            user_after_tool=False,
            call_id_pattern="[a-zA-Z0-9]{9}",
            call_id_length=9,
        ),
    ),
    Preset(
        provider_id="xai",
        base_url="https://api.x.ai/v1",
        key_variable="XAI_API_KEY",
        quirks=replace(_COMPATIBLE, reasoning_counted_apart=True),
    ),
    Preset(
        provider_id="together",
        base_url="https://api.together.xyz/v1",
        key_variable="TOGETHER_API_KEY",
        quirks=replace(_COMPATIBLE, settings_fields=_WITH_TOP_K),
    ),
    Preset(
        provider_id="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY",
        quirks=replace(_COMPATIBLE, reasoning_counted_apart=True),
    ),
    Preset(
        provider_id="ollama",
        base_url="http://localhost:11434/v1",
        key_variable="OLLAMA_API_KEY",
        needs_key=False,
    ),
    Preset(
        provider_id="vllm",
        base_url="http://localhost:8000/v1",
        key_variable="VLLM_API_KEY",
        needs_key=False,
        quirks=_LOCAL,
    ),
    Preset(
        provider_id="llamacpp",
        base_url="http://localhost:8080/v1",
        key_variable="LLAMA_API_KEY",
        needs_key=False,
        quirks=_LOCAL,
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.provider_id: preset for preset in _ALL})
"""The presets by name."""
