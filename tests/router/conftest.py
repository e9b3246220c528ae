"""One PostgreSQL for all tests of the router, and another for those that end it."""

from collections.abc import Iterator

import pytest

from tests.postgresql import PostgreSQL, running_postgresql


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_url(postgresql: PostgreSQL) -> str:
    """One database for all tests that leave its tables as they are."""
    return postgresql.new_database()


@pytest.fixture(scope="session")
def mortal_postgresql() -> Iterator[PostgreSQL]:
    """Runs a server that tests end and start again."""
    with running_postgresql() as server:
        yield server
