"""Answers in Redis, which all routers share that use it."""

import math
import struct
import time
from collections.abc import Mapping, Sequence

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.router.response_cache.backend import GET_SECONDS, PUT_SECONDS, Bounds, Kept
from penstock.system.arguments import InvalidArgument

_PREFIX = b"penstock:answer:"
_KEPT_AT = struct.Struct("<d")
_CONNECTIONS = 32


class InRedis:
    """Keeps answers at a URL. Redis itself drops those that are too old, and by its own `maxmemory` those that are too
    many: it may be for others, too."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        """Raises InvalidArgument for a URL that is none of Redis."""
        self._age = bounds.age
        try:
            pool = BlockingConnectionPool.from_url(
                url, max_connections=_CONNECTIONS, timeout=GET_SECONDS, socket_connect_timeout=GET_SECONDS,
                socket_timeout=PUT_SECONDS, retry=Retry(NoBackoff(), 0))
        except ValueError as error:
            raise InvalidArgument(f"`response_cache` must be a URL of Redis such as redis://host:6379/0: {error}"
                                  ) from error
        self._redis = Redis(connection_pool=pool)

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        values = await self._redis.mget([_PREFIX + key for key in keys])
        now = time.time()
        return {key: Kept(value[_KEPT_AT.size:], max(0.0, now - _KEPT_AT.unpack_from(value)[0]))
                for key, value in zip(keys, values, strict=True) if value is not None and len(value) > _KEPT_AT.size}

    async def put(self, contents: Mapping[bytes, bytes]) -> None:
        head, seconds = _KEPT_AT.pack(time.time()), math.ceil(self._age)
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key, content in contents.items():
                pipeline.set(_PREFIX + key, head + content, ex=seconds)
            await pipeline.execute()

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()
