"""How layers go on to one another, and what they cannot do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from cubepi_anyio import UsageError
from cubepi_anyio.hooks.around import Layer, Proceed, through

pytestmark = [pytest.mark.anyio, pytest.mark.deadline(10)]


class Body:
    """What layers stand around; ``known`` is what it came to."""

    def __init__(self, do: Callable[[], Awaitable[str]] | None = None) -> None:
        self._do = do
        self.known: str | None = None
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        try:
            self.known = await self._do() if self._do is not None else "body"
        finally:
            self.known = self.known or "cut"
        return self.known

    async def inside(self, *layers: Layer, may_repeat: bool = False) -> str:
        def accept(returned: Any) -> str:
            if not isinstance(returned, str):
                raise TypeError(f"not {type(returned).__name__}")
            return returned

        return await through(
            layers, self, known=lambda: self.known, accept=accept, what="a body", may_repeat=lambda: may_repeat
        )


async def test_the_first_layer_is_the_outermost() -> None:
    log: list[str] = []

    def layer(name: str) -> Layer:
        async def around(proceed: Proceed[str]) -> str:
            log.append(f"<{name}")
            outcome = await proceed()
            log.append(f"{name}>")
            return outcome + name

        return around

    assert await Body().inside(layer("a"), layer("b"), layer("c")) == "bodycba"
    assert log == ["<a", "<b", "<c", "c>", "b>", "a>"]


async def test_without_layers_the_body_is_called_as_it_is() -> None:
    assert await Body().inside() == "body"


async def test_none_keeps_the_outcome() -> None:
    async def keep(proceed: Proceed[str]) -> None:
        await proceed()

    assert await Body().inside(keep, keep) == "body"


async def test_a_layer_that_does_not_go_on_answers_in_place_of_all_that_is_further_in() -> None:
    seen: list[bool] = []

    async def answer(proceed: Proceed[str]) -> str:
        return "mine"

    async def watch(proceed: Proceed[str]) -> str:
        outcome = await proceed()
        seen.append(proceed.is_called)
        return outcome

    async def never(proceed: Proceed[str]) -> str:
        raise AssertionError("further in than the answer")

    body = Body()
    assert await body.inside(watch, answer, never) == "mine"
    assert (body.calls, seen) == (0, [True])


async def test_what_a_layer_returns_is_checked_once_for_each_layer() -> None:
    async def number(proceed: Proceed[str]) -> int:
        await proceed()
        return 7

    async def nothing(proceed: Proceed[str]) -> None:
        return None

    for layer, name in ((number, "int"), (nothing, "NoneType")):
        with pytest.raises(TypeError, match=f"not {name}"):
            await Body().inside(layer)


async def test_going_on_twice_is_misuse_except_where_that_is_allowed() -> None:
    async def twice(proceed: Proceed[str]) -> str:
        await proceed()
        return await proceed()

    body = Body()
    with pytest.raises(UsageError, match=r"proceed\(\) can be called once around a body"):
        await body.inside(twice)
    assert body.calls == 1
    assert await Body().inside(twice, may_repeat=True) == "body"


async def test_each_layer_further_in_is_opened_again_when_an_outer_one_goes_on_again() -> None:
    opened: list[str] = []

    async def twice(proceed: Proceed[str]) -> str:
        await proceed()
        return await proceed()

    async def inner(proceed: Proceed[str]) -> str:
        opened.append("inner")
        return await proceed()

    await Body().inside(twice, inner, may_repeat=True)
    assert opened == ["inner", "inner"]


# --- what leaves all the same ----------------------------------------------------------------


async def swallow(proceed: Proceed[str]) -> str:
    try:
        return await proceed()
    except BaseException:  # noqa: ASYNC103 - it is what is tested
        return "swallowed"  # noqa: ASYNC104


async def swallow_exceptions(proceed: Proceed[str]) -> str:
    try:
        return await proceed()
    except Exception:
        return "swallowed"


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
async def test_what_the_body_raised_leaves_although_a_layer_caught_it(kind: type[BaseException]) -> None:
    bug = kind("the body's")

    async def fail() -> str:
        await checkpoint()
        raise bug

    with pytest.raises(kind) as caught:
        await Body(fail).inside(swallow, swallow)
    assert caught.value is bug


async def test_a_group_leaves_as_itself_although_a_layer_caught_it() -> None:
    group = ExceptionGroup("two", [ValueError(), KeyError()])

    async def fail() -> str:
        raise group

    with pytest.raises(ExceptionGroup) as caught:
        await Body(fail).inside(swallow)
    assert caught.value is group


async def test_what_a_layer_raises_in_place_of_the_body_s_exception_leaves_with_that_as_its_context() -> None:
    async def fail() -> str:
        raise ValueError("the body's")

    async def translate(proceed: Proceed[str]) -> str:
        try:
            return await proceed()
        except ValueError as error:
            raise LookupError("the layer's") from error

    with pytest.raises(LookupError) as caught:
        await Body(fail).inside(swallow_exceptions, translate)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_what_was_caught_before_the_layer_went_on_again_is_over() -> None:
    answers = iter([ValueError("once"), None])

    async def fail_once() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "at last"

    async def again(proceed: Proceed[str]) -> str:
        try:
            return await proceed()
        except ValueError:
            return await proceed()

    assert await Body(fail_once).inside(again, may_repeat=True) == "at last"


@pytest.mark.parametrize("layer", [swallow, swallow_exceptions])
async def test_a_cancellation_leaves_although_a_layer_caught_it(layer: Layer) -> None:
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    body, returned = Body(wait), list[str]()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def go() -> None:
                returned.append(await body.inside(layer, layer))

            tasks.start_soon(go)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert (scope.cancelled_caught, returned, body.known) == (True, [], "cut")


async def test_where_it_is_cancelled_the_outcome_is_known_by_then() -> None:
    seen: list[str | None] = []

    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    async def watch(proceed: Proceed[str]) -> str:
        assert proceed.outcome is None
        try:
            return await proceed()
        finally:
            seen.append(proceed.outcome)

    with anyio.move_on_after(0.01):
        await Body(wait).inside(watch, watch)
    assert seen == ["cut", "cut"]


async def test_a_scope_of_a_layer_s_own_ends_what_it_stands_around_and_the_layer_goes_on() -> None:
    async def wait() -> str:
        await anyio.sleep_forever()
        return "never"

    async def limited(proceed: Proceed[str]) -> str:
        with anyio.move_on_after(0.01):
            return await proceed()
        assert proceed.outcome == "cut"
        return "in time"

    assert await Body(wait).inside(limited) == "in time"
