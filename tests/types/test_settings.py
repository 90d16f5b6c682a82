"""Settings laid over each other: by model, by agent, by run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cubepi_anyio import ModelSettings, StreamOptions
from cubepi_anyio.types import Model
from cubepi_anyio.types.settings import merged_body


def test_what_is_said_later_wins_field_by_field() -> None:
    first = ModelSettings(temperature=0.1, top_p=0.9, stop=("END",))
    second = ModelSettings(temperature=0.0, parallel_tool_calls=False)
    merged = first.merge(second)
    assert merged == ModelSettings(temperature=0.0, top_p=0.9, stop=("END",), parallel_tool_calls=False)
    assert first.merge(None) is first
    assert first == ModelSettings(temperature=0.1, top_p=0.9, stop=("END",))


def test_bodies_are_merged_deeply_and_headers_by_name() -> None:
    first = ModelSettings(extra_body={"a": {"b": 1, "c": [1]}, "d": 1}, extra_headers={"X-A": "1", "X-B": "1"})
    second = ModelSettings(extra_body={"a": {"c": [2]}, "d": None}, extra_headers={"x-a": "2"})
    merged = first.merge(second)
    assert merged.extra_body == {"a": {"b": 1, "c": [2]}, "d": None}
    assert merged.extra_headers == {"X-B": "1", "x-a": "2"}
    assert first.extra_body == {"a": {"b": 1, "c": [1]}, "d": 1}


def test_lists_of_tools_are_added_to_each_other() -> None:
    assert merged_body({"tools": [1]}, {"tools": [2, 1]}) == {"tools": [1, 2]}
    assert merged_body({"a": {"tools": [1]}}, {"a": {"tools": [2]}}) == {"a": {"tools": [2]}}
    assert merged_body({}, {"tools": [2]}) == {"tools": [2]}


BODIES = st.recursive(
    st.integers(0, 3) | st.none(),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "tools"]), inner) | st.lists(inner, max_size=2),
    max_leaves=8,
)
SETTINGS = st.builds(
    ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    seed=st.none() | st.integers(),
    extra_body=st.none() | st.dictionaries(st.sampled_from(["a", "b", "tools"]), BODIES),
    extra_headers=st.none()
    | st.dictionaries(st.sampled_from(["x", "X", "y"]), st.sampled_from(["1", "2"]), max_size=2),
)


@given(SETTINGS, SETTINGS)
def test_laying_the_same_settings_over_twice_changes_nothing(first: ModelSettings, second: ModelSettings) -> None:
    merged = first.merge(second)
    assert merged.merge(second) == merged


@pytest.mark.parametrize("wrong", [{"temprature": 1}, {"stop": "END"}, {"seed": "many"}])
def test_settings_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelSettings.model_validate(wrong)


# --- options ---------------------------------------------------------------------------------


def test_options_given_by_themselves_are_laid_over_the_settings() -> None:
    settings = ModelSettings(temperature=0.5, seed=3, extra_body={"a": {"b": 1}}, extra_headers={"x": "1"})
    options = StreamOptions(settings=settings, temperature=0.0, extra_body={"a": {"c": 2}}, max_output_tokens=9)
    assert (options.temperature, options.max_output_tokens, options.settings.seed) == (0.0, 9, 3)
    assert options.extra_body == {"a": {"b": 1, "c": 2}}
    assert options.extra_headers == {"x": "1"}


def test_options_say_what_settings_say_and_nothing_by_default() -> None:
    options = StreamOptions(settings=ModelSettings(temperature=0.5))
    assert (options.temperature, options.max_output_tokens, options.extra_body, options.extra_headers) == (
        0.5,
        None,
        None,
        None,
    )
    assert StreamOptions().settings == ModelSettings()
    assert StreamOptions() == StreamOptions(settings=ModelSettings())


def test_options_can_be_replaced_one_by_one() -> None:
    options = StreamOptions(temperature=0.5, settings=ModelSettings(seed=1))
    assert replace(options, temperature=0.1).settings == ModelSettings(temperature=0.1, seed=1)
    assert replace(options, settings=ModelSettings(seed=2)).settings == ModelSettings(seed=2)
    assert replace(options, signal=None) == options
    with pytest.raises(TypeError, match="budget"):
        StreamOptions(budget=1)  # type: ignore[call-arg]


def test_a_limit_that_was_given_is_told_from_the_default() -> None:
    assert Model(id="m").given_max_tokens is None
    assert Model(id="m", max_tokens=8192).given_max_tokens == 8192
    assert Model(id="m").model_copy(update={"max_tokens": 8192}).given_max_tokens == 8192
