"""What every checkpointer promises, as checks that run on any: for the stores of this package and for yours.

::

    @asynccontextmanager
    async def make_store():  # entered twice, it gives two stores on one database
        async with MyCheckpointer(path) as store:
            yield store


    @pytest.mark.parametrize("check", CHECKPOINTER_CHECKS, ids=lambda check: check.name)
    async def test_my_store(check):
        await check(make_store)

A check needs no empty database: it uses thread ids nobody else has. It raises ``AssertionError``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._at_once import CHECKS as _AT_ONCE
from ._runs import CHECKS as _RUNS
from ._threads import CHECKS as _THREADS
from ._tools import StoreFactory as StoreFactory
from ._tools import Test as _Test

__all__ = ("CHECKPOINTER_CHECKS", "CheckpointerCheck", "StoreFactory", "check_checkpointer")


@dataclass(frozen=True, slots=True)
class CheckpointerCheck:
    """One promise and its proof."""

    name: str
    """The promise, with underscores."""
    test: _Test

    async def __call__(self, make_store: StoreFactory) -> None:
        """Prove it on the stores ``make_store`` gives. A checkpoint. Raises ``AssertionError``."""
        await self.test(make_store)


async def check_checkpointer(make_store: StoreFactory) -> None:
    """Run all checks, one after the other. Raises the ``AssertionError`` of the first that fails, with its name."""
    for check in CHECKPOINTER_CHECKS:
        try:
            await check(make_store)
        except Exception as error:
            error.add_note(f"in the check {check.name}")
            raise


CHECKPOINTER_CHECKS = tuple(
    CheckpointerCheck(getattr(test, "__name__", ""), test) for test in (*_THREADS, *_RUNS, *_AT_ONCE)
)
"""All checks."""
