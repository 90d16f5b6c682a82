"""Why a run ends: the strongest cause counts, and of two equal ones the first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import anyio
import pytest
from anyio import CancelScope

from cubepi_anyio import FauxResponse, Message, Middleware, RateLimited, RunLimits
from cubepi_anyio.agent.ending import CauseKind, Ending, outcome_by
from tests.support.agents import assert_well_ended, bench, calling, saying

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(15)]

BUG, REFUSED = LookupError("a bug"), RateLimited("slow down")

CAUSES: dict[str, Callable[[Ending], None]] = {
    "error": lambda ending: ending.model_failed(REFUSED),
    "limit": lambda ending: ending.reach_limit("max_turns", 3),
    "aborted": lambda ending: ending.abort("enough"),
    "failed": lambda ending: ending.fail(BUG),
}
"""The weakest first."""
OUTCOMES = {"error": "error", "limit": "limit", "aborted": "aborted", "failed": "error"}


async def test_a_run_that_nobody_ends_completes_or_waits_for_a_person() -> None:
    ending = Ending()
    assert (ending.cause, ending.is_called, ending.may_end_in_peace, ending.why()) == (None, False, True, None)
    assert ending.outcome(is_suspended=False) == "completed"
    assert ending.outcome(is_suspended=True) == "suspended"
    assert (ending.to_raise, ending.model_error, ending.limit, ending.signal.is_set()) == (None, None, None, False)


@pytest.mark.parametrize("name", CAUSES)
async def test_each_cause_has_its_outcome(name: str) -> None:
    ending = Ending()
    CAUSES[name](ending)
    cause = ending.cause
    assert cause is not None
    assert cause.kind.name.lower() == name
    assert ending.is_called
    assert ending.outcome(is_suspended=True) == ending.outcome(is_suspended=False) == OUTCOMES[name]
    assert ending.may_end_in_peace is (name == "error")
    assert ending.to_raise is (BUG if name == "failed" else None)
    assert ending.model_error is (REFUSED if name == "error" else None)
    assert ending.limit == ("max_turns" if name == "limit" else None)
    assert ending.scope.cancel_called is (name in ("aborted", "failed"))
    assert ending.signal.is_set() is (name != "error")


@pytest.mark.parametrize("order", list(permutations(CAUSES)))
async def test_in_whatever_order_they_come_the_strongest_counts(order: tuple[str, ...]) -> None:
    ending, strongest = Ending(), ""
    for name in order:
        CAUSES[name](ending)
        strongest = max(strongest, name, key=["", *CAUSES].index)
        cause = ending.cause
        assert cause is not None
        assert cause.kind is CauseKind[strongest.upper()]
        assert ending.outcome(is_suspended=False) == OUTCOMES[strongest]
    assert ending.to_raise is BUG


async def test_of_two_equal_causes_the_first_stands() -> None:
    ending = Ending()
    ending.abort("first")
    ending.abort("second")
    assert (ending.why(), ending.signal.reason) == ("the run was aborted (first)", "first")
    ending = Ending()
    ending.fail(BUG)
    ending.fail(ValueError("another"))
    assert ending.to_raise is BUG
    ending = Ending()
    ending.reach_limit("max_turns", 1)
    ending.reach_limit("max_tool_calls", 2)
    assert (ending.limit, ending.cause and ending.cause.bound) == ("max_turns", 1)


async def test_whoever_wakes_up_finds_the_cause() -> None:
    ending, found = Ending(), list[str | None]()
    ending.signal.follow(lambda reason: found.append(ending.why()))
    ending.abort("enough")
    assert found == ["the run was aborted (enough)"]


async def test_of_the_deadlines_of_one_limit_the_last_counts() -> None:
    ending, first, second = Ending(), CancelScope(), CancelScope()
    ending.bound_run(60)
    ending.bound_by("turn_timeout", first, 5)
    ending.bound_by("turn_timeout", second, 7)
    assert ending.deadlines == (("run_timeout", ending.scope, 60), ("turn_timeout", second, 7))
    first.cancel()
    assert not ending.is_called
    second.cancel()
    assert (ending.limit, ending.cause and ending.cause.bound) == ("turn_timeout", 7)


async def test_too_late_for_an_abort_once_the_run_settles() -> None:
    ending = Ending()
    ending.is_settling = True
    ending.abort("late")
    assert (ending.cause, ending.scope.cancel_called, ending.signal.is_set()) == (None, False, False)
    ending.fail(BUG)
    assert ending.to_raise is BUG


async def test_an_abort_reaches_what_stands_around_the_run_only_while_that_is_at_work() -> None:
    ending, around = Ending(), CancelScope()
    ending.around = around
    ending.abort(None)
    assert around.cancel_called
    ending, around = Ending(), CancelScope()
    ending.is_settling, ending.around = True, around
    ending.abort(None)
    assert (around.cancel_called, ending.cause) == (True, None)


async def test_a_failure_that_is_not_urgent_cancels_nothing() -> None:
    ending = Ending()
    ending.fail(BUG, at_once=False)
    assert (ending.to_raise, ending.scope.cancel_called, ending.signal.is_set()) == (BUG, False, True)


async def test_a_deadline_that_has_passed_is_the_limit_it_was_given_for() -> None:
    ending = Ending()
    with CancelScope() as turn:
        ending.bound_by("turn_timeout", turn, 5)
        assert ending.cause is None
        turn.deadline = anyio.current_time() - 1
        await anyio.sleep_forever()
    assert (ending.limit, ending.why()) == ("turn_timeout", "the run reached its limit turn_timeout")
    assert ending.signal.reason == "the run reached turn_timeout=5"
    other = CancelScope()
    ending.bound_by("run_timeout", other, 9)
    other.cancel()
    assert ending.limit == "turn_timeout"


async def test_a_new_deadline_takes_the_place_of_the_one_of_the_same_name() -> None:
    ending, first, second = Ending(), CancelScope(), CancelScope()
    ending.bound_by("turn_timeout", first, 1)
    ending.bound_by("turn_timeout", second, 2)
    first.cancel()
    assert ending.cause is None
    second.cancel()
    assert (ending.limit, ending.cause and ending.cause.bound) == ("turn_timeout", 2)


async def test_an_abort_before_its_deadline_was_noticed_does_not_hide_behind_it() -> None:
    ending, scope = Ending(), CancelScope()
    ending.bound_by("turn_timeout", scope, 5)
    scope.cancel()
    ending.abort("enough")
    assert ending.outcome(is_suspended=False) == "aborted"


async def test_a_cancellation_from_outside_is_no_cause_and_is_told_to_who_follows() -> None:
    ending = Ending()
    ending.surroundings_cancelled()
    assert (ending.cause, ending.signal.reason) == (None, "the run was cancelled")
    assert ending.outcome(is_suspended=False) == "completed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError(), "error"),
        (KeyboardInterrupt(), "aborted"),
        (SystemExit(), "aborted"),
        (GeneratorExit(), "aborted"),
    ],
)
async def test_an_exception_ends_a_run_as_an_error_or_as_an_abort(error: BaseException, outcome: str) -> None:
    assert outcome_by(error) == outcome
    ending = Ending()
    ending.fail(error)
    assert ending.outcome(is_suspended=False) == outcome


# --- in runs ---------------------------------------------------------------------------------


async def test_an_abort_goes_before_a_limit_that_was_reached() -> None:
    made = bench(calling("say", "say"), tools=[saying("say")], limits=RunLimits(max_tool_calls=1))
    made.agent.subscribe(lambda event: made.agent.abort("enough") if event.type == "tool_execution_end" else None)
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.abort_reason, result.limit, result.limit_value) == ("aborted", "enough", None, None)


async def test_an_abort_goes_before_a_model_that_failed() -> None:
    made = bench(FauxResponse("half", fail_after_deltas=1, fail_with=REFUSED))

    def abort(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "assistant":
            made.agent.abort()

    unsubscribe = made.agent.subscribe(abort)
    result = await made.agent.prompt("hi")
    unsubscribe()
    assert (result.outcome, result.error) == ("aborted", None)
    await assert_well_ended(made)


async def test_a_bug_goes_before_an_abort() -> None:
    class Failing(Middleware):
        async def transform_context(self, messages: list[Message], *, ctx: Any, signal: Any) -> list[Message]:
            made.agent.abort()
            raise BUG

    made = bench("never", middleware=[Failing()])
    with pytest.raises(LookupError) as caught:
        await made.agent.prompt("hi")
    assert caught.value is BUG
    assert made.labels[-1] == "agent_end:error"


async def test_two_aborts_are_one() -> None:
    made = bench(FauxResponse("never", stall_before_start=True))

    def twice(event: Any) -> None:
        if event.type == "turn_start":
            made.agent.abort("first")
            made.agent.abort("second")

    made.agent.subscribe(twice)
    result = await made.agent.prompt("hi")
    assert (result.outcome, result.abort_reason) == ("aborted", "first")
