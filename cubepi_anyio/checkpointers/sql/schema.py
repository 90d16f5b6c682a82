"""The tables' versions: which there are, which a database has, and how it gets from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from ...errors import StoreSchemaError

__all__ = ("check_version", "latest_version", "migration_files", "missing_migrations")


@cache
def migration_files(dialect: str) -> tuple[tuple[str, str], ...]:
    """Name and text of the migrations of a dialect, oldest first. The n-th one makes version n."""
    folder = files(__package__ or "").joinpath(dialect)
    found = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".sql"))
    return tuple(found)


def latest_version(dialect: str) -> int:
    """The version of the tables that this package reads and writes."""
    return len(migration_files(dialect))


def check_version(dialect: str, version: int, way_out: str) -> None:
    """Raise ``StoreSchemaError`` unless ``version`` is the latest; 0 means that there are no tables."""
    latest = latest_version(dialect)
    if version > latest:
        raise StoreSchemaError(
            f"the tables are of version {version}, made by a newer release of this package, which knows versions up to "
            f"{latest}: install that release, or use another database"
        )
    if version < latest:
        has = f"the tables are of version {version}" if version else "the database has no tables of this package"
        raise StoreSchemaError(f"{has}, and version {latest} is needed: {way_out}")


def missing_migrations(dialect: str, version: int, run: Callable[[str], object]) -> None:
    """Run the statements that lead from ``version`` to the latest one.

    Raises what ``run`` raises, and ``StoreSchemaError`` if the tables are newer than that.
    """
    if version > latest_version(dialect):
        check_version(dialect, version, "")
    for _, text in migration_files(dialect)[version:]:
        for statement in text.split(";\n"):
            if statement.strip():
                run(statement)
