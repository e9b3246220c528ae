"""Answers that are kept in the database for equal requests."""

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, func, select

from penstock.router.store.database import Database
from penstock.router.store.tables import KEPT_ANSWERS as KEPT

SWEPT = 1000
"""How many answers are deleted at once."""


class KeptAnswers:
    """Keeps answers by their keys, each for `age` seconds, and not many more than `size` bytes of them."""

    def __init__(self, database: Database, size: int, age: float) -> None:
        self._database = database
        self._size = size
        self._age = age

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, float]]:
        """Returns those answers that are there and not too old, each with its age in seconds. Raises
        StoreUnavailable."""
        clock = self._database.clock
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(KEPT.c.key, KEPT.c.content, (clock - KEPT.c.kept_at).label("age"))
                .where(KEPT.c.key.in_(keys), KEPT.c.kept_at > clock - self._age))
            return {row.key: (row.content, max(0.0, row.age)) for row in rows}

    async def keep(self, contents: Mapping[bytes, bytes]) -> None:
        """Keeps answers, in place of those that had their keys. Raises StoreUnavailable or StoreFull."""
        insert = self._database.inserting(KEPT).values(kept_at=self._database.clock)
        new = {name: insert.excluded[name] for name in ("kept_at", "bytes", "content")}
        async with self._database.writing() as connection:
            await connection.execute(insert.on_conflict_do_update(index_elements=[KEPT.c.key], set_=new), [
                {"key": key, "bytes": len(content), "content": content}
                for key, content in sorted(contents.items())])  # in one order, or two servers could wait for each other

    async def sweep(self) -> int:
        """Deletes answers that are too old, and the oldest of too many. Returns how many bytes are left. Raises
        StoreUnavailable."""
        async with self._database.writing() as connection:
            await connection.execute(delete(KEPT).where(KEPT.c.kept_at <= self._database.clock - self._age))
        while (size := await self._total()) > self._size:
            async with self._database.writing() as connection:
                oldest = (await connection.execute(
                    select(KEPT.c.key, KEPT.c.bytes).order_by(KEPT.c.kept_at).limit(SWEPT))).all()
                gone, excess = [], size - self._size
                for row in oldest:
                    if excess > 0:
                        gone.append(row.key)
                        excess -= row.bytes
                await connection.execute(delete(KEPT).where(KEPT.c.key.in_(gone)))
        return size

    async def _total(self) -> int:
        async with self._database.reading() as connection:
            return int((await connection.execute(select(func.coalesce(func.sum(KEPT.c.bytes), 0)))).scalar_one())
