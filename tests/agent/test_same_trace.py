"""The same script gives the same trace on every backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import anyio
import pytest

from cubepi_anyio import (
    AgentToolResult,
    FauxResponse,
    ProviderError,
    faux_assistant_message,
    faux_thinking,
    faux_tool_call,
)
from tests.support.agents import Bench, NoParams, Word, bench, calling, label, saying, sleeping, tool_of

BACKENDS: list[tuple[str, dict[str, Any]]] = [("asyncio", {})]
if find_spec("uvloop") is not None:
    BACKENDS.append(("asyncio", {"use_uvloop": True}))
if find_spec("trio") is not None:
    BACKENDS.append(("trio", {}))


def scripted() -> Bench:
    """Streaming, thinking, every kind of call, updates, steering, a follow-up, a failure and a resumption."""

    async def echo(tool_call_id: str, params: Word, *, on_update: Any) -> str:
        await on_update(params.word)
        if params.word == "fail":
            raise ValueError("no")
        return params.word

    async def blocked(tool_call_id: str, params: NoParams) -> AgentToolResult:
        return AgentToolResult("blocked", is_error=True)

    def plain(tool_call_id: str, params: NoParams) -> str:
        return "from a thread"

    tools = [
        tool_of("echo", echo, parameters=Word),
        tool_of("blocked", blocked),
        tool_of("plain", plain),
        saying("alone", execution_mode="sequential"),
        sleeping("slow", timeout=0.02),
    ]
    words = [faux_tool_call("echo", {"word": word}, id=word) for word in ("a", "fail", "b")]
    made = bench(
        faux_assistant_message([faux_thinking("hm", "sig"), "text", *words, faux_tool_call("nope", {}, id="n")]),
        calling("alone", "blocked", "plain"),
        calling("slow"),
        "steered",
        "followed",
        FauxResponse("half an answer", fail_with=ProviderError("cut"), fail_after_deltas=2),
        tools=tools,
    )
    made.agent.follow_up("and then?")
    made.agent.follow_up("and then??")
    steered: list[bool] = []

    def steer(event: Any) -> None:
        if event.type == "tool_execution_start" and event.tool_name == "slow" and not steered:
            steered.append(True)
            made.agent.steer("hurry")

    made.agent.subscribe(steer)
    return made


def normalised(labels: list[str]) -> list[str]:
    """The labels, with what parallel calls did between their starts and their results in alphabetical order."""
    trace: list[str] = []
    batch: list[str] = []
    for name in labels:
        if name.startswith(("tool_execution_update", "tool_execution_end")):
            batch.append(name)
            continue
        trace += sorted(batch)
        batch = []
        trace.append(name)
    return trace


def told(made: Bench) -> list[Any]:
    """The transcript without ids and times."""
    return [message.model_dump(exclude={"id", "timestamp", "run_id"}) for message in made.agent.state.messages]


def test_the_same_script_gives_the_same_trace_and_transcript_on_all_backends() -> None:
    runs: list[tuple[list[str], list[Any], str]] = []
    for backend, options in BACKENDS:
        made = scripted()
        result = anyio.run(made.agent.prompt, "hi", backend=backend, backend_options=options)
        runs.append((normalised(made.labels), told(made), result.outcome))
    for trace, transcript, outcome in runs[1:]:
        assert trace == runs[0][0]
        assert transcript == runs[0][1]
        assert outcome == runs[0][2] == "error"
    assert "tool_execution_end:c1:timed_out" in runs[0][0]
    assert runs[0][0][-1] == "agent_end:error"


@pytest.mark.parametrize("seed", range(5))
def test_a_sequential_script_gives_the_same_trace_to_the_letter(seed: int) -> None:
    traces: list[list[str]] = []
    for backend, options in BACKENDS:
        made = scripted()
        made.agent.tool_execution = "sequential"
        anyio.run(made.agent.prompt, f"hi {seed}", backend=backend, backend_options=options)
        traces.append([label(event) for event in made.events])
    assert all(trace == traces[0] for trace in traces)
