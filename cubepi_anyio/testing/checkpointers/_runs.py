"""Checks of checkpointers: claims of runs, questions and answers."""

from __future__ import annotations

import anyio

from ...checkpointers.base import Checkpointer, RunClaim, StoredRequest
from ...errors import AlreadyAnswered, ClaimLost, RunIdTaken, ThreadBusy, UnknownRequest
from ...types.hitl import (
    ApproveAnswer,
    ApproveRequest,
    AskRequest,
    ConfirmRequest,
    PersonAnswer,
    Question,
    RequestPayload,
)
from ._tools import (
    LEASE_SECONDS,
    StoreFactory,
    Test,
    asks,
    fresh,
    has_only,
    ids_of,
    loaded,
    raises,
    same,
    says,
    whole_run,
)


async def one_run_at_a_time_holds_a_thread(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store, make_store() as other:
        claim = await store.claim_run(thread, "r1", lease_seconds=LEASE_SECONDS)
        same((claim.thread_id, claim.run_id), (thread, "r1"), "claim")
        with raises(ThreadBusy, "a second claim"):
            await other.claim_run(thread, "r2", lease_seconds=LEASE_SECONDS)
        with raises(ThreadBusy, "a second claim of the same run"):
            await store.claim_run(thread, "r1", lease_seconds=LEASE_SECONDS)
        with raises(ThreadBusy, "append() without the claim"):
            await other.append(thread, [says("a")], extra={"k": "of one without the claim"})
        await store.append(thread, [says("b")], claim=claim, extra={"l": 1})
        same(await ids_of(other, thread), ["b"], "messages")
        same((await loaded(other, thread)).extra, {"l": 1}, "notes")
        await store.release_claim(claim, "completed")
        await other.append(thread, [says("c")])
        await other.claim_run(thread, "r2", lease_seconds=LEASE_SECONDS)


async def a_lease_that_ran_out_is_taken_over(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store, make_store() as other:
        lost = await store.claim_run(thread, "r1", lease_seconds=0)
        await store.append(thread, [says("a")], claim=lost, extra={"k": "of the first"})
        await store.renew_claim(lost, lease_seconds=0)
        taken = await other.claim_run(thread, "r2", lease_seconds=LEASE_SECONDS)
        if taken.token == lost.token:
            raise AssertionError("two claims have one token")
        await _has_no_rights(store, lost)
        same((await loaded(store, thread)).extra, {"k": "of the first"}, "notes")
        await other.append(thread, [says("c")], claim=taken, extra={"k": "of the second"})
        await _has_no_rights(store, lost)
        await other.renew_claim(taken, lease_seconds=LEASE_SECONDS)
        same(await ids_of(store, thread), ["a", "c"], "messages")
        same((await loaded(store, thread)).extra, {"k": "of the second"}, "notes")


async def _has_no_rights(store: Checkpointer, claim: RunClaim) -> None:
    with raises(ClaimLost, "append() with a lost claim"):
        await store.append(claim.thread_id, [says("b")], claim=claim, extra={"k": "of the lost"})
    with raises(ClaimLost, "append() of notes with a lost claim"):
        await store.append(claim.thread_id, [], claim=claim, extra={"k": "of the lost", "l": 1})
    with raises(ClaimLost, "renew_claim() of a lost claim"):
        await store.renew_claim(claim, lease_seconds=LEASE_SECONDS)
    await store.release_claim(claim, "completed")


async def a_renewed_lease_lasts(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        claim = await store.claim_run(thread, "r1", lease_seconds=0)
        for _ in range(2):
            await store.renew_claim(claim, lease_seconds=LEASE_SECONDS)
        with raises(ThreadBusy, "a claim while a renewed lease lasts"):
            await store.claim_run(thread, "r2", lease_seconds=LEASE_SECONDS)


async def a_claim_given_back_or_of_a_deleted_thread_is_lost(make_store: StoreFactory) -> None:
    async with make_store() as store:
        released = await store.claim_run(fresh(), "r", lease_seconds=LEASE_SECONDS)
        await store.release_claim(released, "aborted")
        await _has_no_rights(store, released)
        has_only(await loaded(store, released.thread_id))
        deleted = await store.claim_run(fresh(), "r", lease_seconds=LEASE_SECONDS)
        await store.delete(deleted.thread_id)
        await _has_no_rights(store, deleted)
        same(await store.load(deleted.thread_id), None, "a deleted thread")


async def a_run_id_names_one_run(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        for end in ("completed", "aborted", "error", "limit"):
            await whole_run(store, thread, end, end=end)
            with raises(RunIdTaken, f"a second run of the id of one that ended {end}"):
                await store.claim_run(thread, end, lease_seconds=LEASE_SECONDS)
        await whole_run(store, thread, "waits", end="suspended")
        again = await store.claim_run(thread, "waits", lease_seconds=0)
        await store.claim_run(thread, "waits", lease_seconds=LEASE_SECONDS)
        with raises(ClaimLost, "append() of a run that was claimed anew"):
            await store.append(thread, [says("a")], claim=again)
        await store.claim_run(fresh(), "completed", lease_seconds=LEASE_SECONDS)


# --- questions -------------------------------------------------------------------------------


async def questions_and_answers_are_loaded_as_they_were(make_store: StoreFactory) -> None:
    thread = fresh()
    decision = ApproveAnswer(decision="edit", reason="é", edited_args={"x": [1]})
    cases: list[tuple[str, RequestPayload, PersonAnswer]] = [
        ("z", ConfirmRequest(prompt="p", details={"k": 1}), False),
        ("y", ApproveRequest(tool_name="rm", args={"path": "/"}), decision),
        ("x", AskRequest(questions=[Question(key="decision", prompt="p")]), {"decision": "approve"}),
        ("w", AskRequest(questions=[Question(key="k", prompt="p")]), {}),
    ]
    async with make_store() as store:
        requests = [asks(name, payload) for name, payload, _ in cases]
        await store.save_requests(thread, requests)
        wanted = [StoredRequest(request) for request in requests]
        same((await loaded(store, thread)).requests, wanted, "questions, oldest first")
        for name, _, answer in cases:
            await store.save_answer(thread, name, answer)
        wanted = [StoredRequest(asks(name, payload), answer, True) for name, payload, answer in cases]
        same((await loaded(store, thread)).requests, wanted, "answers")


async def a_question_is_stored_once(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.save_requests(thread, [asks("q")])
        await store.save_answer(thread, "q", True)
        await store.save_requests(thread, [asks("q", AskRequest(questions=[])), asks("r")])
        wanted = [StoredRequest(asks("q"), True, True), StoredRequest(asks("r"))]
        same((await loaded(store, thread)).requests, wanted, "questions")


async def the_first_answer_stands(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store, make_store() as other:
        await store.save_requests(thread, [asks("q")])
        told: list[tuple[bool, str]] = []

        async def answer(one: Checkpointer, value: bool) -> None:
            try:
                await one.save_answer(thread, "q", value)
                told.append((value, "stored"))
            except AlreadyAnswered:
                told.append((value, "already answered"))

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(answer, (store, other)[number % 2], number < 3)
        stored = [value for value, outcome in told if outcome == "stored"]
        same(len(stored), 1, "answers that were taken")
        same((await loaded(store, thread)).requests, [StoredRequest(asks("q"), stored[0], True)], "the answer")


async def an_answer_needs_its_question(make_store: StoreFactory) -> None:
    thread, other = fresh(), fresh()
    async with make_store() as store:
        await store.save_requests(other, [asks("q")])
        with raises(UnknownRequest, "save_answer() in an unknown thread"):
            await store.save_answer(thread, "q", True)
        await store.append(thread, [])
        with raises(UnknownRequest, "save_answer() to a question of another thread"):
            await store.save_answer(thread, "q", True)


async def cleared_questions_are_forgotten(make_store: StoreFactory) -> None:
    thread = fresh()
    async with make_store() as store:
        await store.clear_requests(thread, ["q"])
        await store.save_requests(thread, [asks("q"), asks("r"), asks("s")])
        await store.save_answer(thread, "q", True)
        await store.clear_requests(thread, ["q", "s", "unknown"])
        same((await loaded(store, thread)).requests, [StoredRequest(asks("r"))], "questions")
        with raises(UnknownRequest, "save_answer() to a cleared question"):
            await store.save_answer(thread, "q", True)
        await store.save_requests(thread, [asks("q")])
        wanted = [StoredRequest(asks("r")), StoredRequest(asks("q"))]
        same((await loaded(store, thread)).requests, wanted, "questions")


CHECKS: tuple[Test, ...] = (
    one_run_at_a_time_holds_a_thread,
    a_lease_that_ran_out_is_taken_over,
    a_renewed_lease_lasts,
    a_claim_given_back_or_of_a_deleted_thread_is_lost,
    a_run_id_names_one_run,
    questions_and_answers_are_loaded_as_they_were,
    a_question_is_stored_once,
    the_first_answer_stands,
    an_answer_needs_its_question,
    cleared_questions_are_forgotten,
)
