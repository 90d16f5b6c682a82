"""PostgreSQL and MariaDB for tests: started from the system's packages, in a folder of their own, without a network."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from cubepi_anyio.checkpointers.mysql import MySQLCheckpointer
from cubepi_anyio.checkpointers.postgres import PostgresCheckpointer

T = TypeVar("T")

STARTED_WITHIN_SECONDS = 60.0


def shared_postgres(request: pytest.FixtureRequest) -> str:
    """The conninfo of a server with our tables, one for all tests of this process."""
    return _shared(request, _POSTGRES, postgres_server, lambda conninfo: PostgresCheckpointer(conninfo).create_tables)


def shared_mariadb(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How to connect to a server with our tables, one for all tests of this process."""
    return _shared(request, _MARIADB, mariadb_server, lambda address: MySQLCheckpointer(**address).create_tables)


_POSTGRES: pytest.StashKey[str] = pytest.StashKey()
_MARIADB: pytest.StashKey[dict[str, Any]] = pytest.StashKey()


def _shared(
    request: pytest.FixtureRequest,
    key: pytest.StashKey[T],
    start: Callable[[], AbstractContextManager[T]],
    create_tables: Callable[[T], Callable[[], Awaitable[None]]],
) -> T:
    """Kept with the configuration, because fixtures of two folders would start two servers."""
    stash = request.config.stash
    if key not in stash:
        with ExitStack() as stack:
            stash[key] = stack.enter_context(start())
            anyio.run(create_tables(stash[key]))
            request.config.add_cleanup(stack.pop_all().close)
    return stash[key]


@contextmanager
def postgres_server() -> Generator[str]:
    """A PostgreSQL with an empty database; its conninfo. Skips the test where there is none installed."""
    _needs_driver("psycopg")
    programs = _postgres_programs()
    with _folder("postgres") as folder:
        data = folder / "data"
        _finish([programs / "initdb", "-D", data, "-U", "cubepi", "-A", "trust", "-N", "-E", "UTF8"], "postgres")
        unsafe = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off", "max_connections=60"]
        options = [part for setting in unsafe for part in ("-c", setting)]
        command = [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", *options]
        conninfo = f"host={folder} user=cubepi dbname=postgres"
        with _running(command, "postgres", signal.SIGQUIT, lambda: _postgres_answers(conninfo)):
            yield conninfo


@contextmanager
def mariadb_server() -> Generator[dict[str, Any]]:
    """A MariaDB with an empty database ``cubepi``; how to connect to it. Skips the test where there is none."""
    _needs_driver("pymysql")
    server, install = shutil.which("mariadbd", path=_PATH), shutil.which("mariadb-install-db", path=_PATH)
    if server is None or install is None:
        pytest.skip("MariaDB is not installed (mariadbd, mariadb-install-db); .ci/run installs it")
    with _folder("mysql") as folder:
        data = f"--datadir={folder / 'data'}"
        install_command = [install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        _finish(install_command, "mysql")
        address = {"unix_socket": str(folder / "socket"), "user": "root"}
        quick = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--skip-networking"]
        command = [server, "--no-defaults", data, f"--socket={address['unix_socket']}", *quick]
        with _running(command, "mysql", signal.SIGKILL, lambda: _mariadb_answers(address)):
            yield {**address, "database": "cubepi"}


_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def _needs_driver(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def _postgres_programs() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if not versions:
        pytest.skip("PostgreSQL is not installed (initdb, postgres); .ci/run installs it")
    return max(versions, key=lambda path: float(path.parent.name))


def _postgres_answers(conninfo: str) -> None:
    import psycopg  # noqa: PLC0415 - an extra

    psycopg.connect(conninfo, connect_timeout=1).close()


def _mariadb_answers(address: dict[str, Any]) -> None:
    import pymysql  # noqa: PLC0415 - an extra

    # Asked before the driver is, which leaves its socket open when nobody answers.
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(address["unix_socket"])
    connection = pymysql.connect(**address)
    connection.cursor().execute("create database cubepi")
    connection.close()


@contextmanager
def _folder(user: str) -> Generator[Path]:
    """A folder that belongs to ``user`` where we are root: neither server runs as root. Its path fits a socket's."""
    folder = Path(tempfile.mkdtemp(prefix="cubepi-"))
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_user(user: str, command: Sequence[str | Path]) -> list[str]:
    """The command as ``user`` where we are root; where it can be arranged, its process dies with ours."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        if os.geteuid() == 0:
            pytest.skip("database servers do not run as root, and there is no setpriv to become somebody else")
        return [str(part) for part in command]
    change = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if os.geteuid() == 0 else []
    return [setpriv, "--pdeathsig", "KILL", *change, *map(str, command)]


def _finish(command: Sequence[str | Path], user: str) -> None:
    done = subprocess.run(_as_user(user, command), capture_output=True, text=True, cwd="/", timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _running(command: Sequence[str | Path], user: str, end: signal.Signals, ask: Callable[[], None]) -> Generator[None]:
    """Run a server until the block is left, entering it when the server answers."""
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(_as_user(user, command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
        try:
            deadline = time.monotonic() + STARTED_WITHIN_SECONDS
            while (problem := _problem(ask)) is not None:
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read().decode()}") from problem
                time.sleep(0.05)
            yield
        finally:
            server.send_signal(end)
            server.wait(30)


def _problem(ask: Callable[[], None]) -> Exception | None:
    try:
        ask()
    except Exception as error:
        return error
    return None
