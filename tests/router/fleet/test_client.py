"""A client of one shard."""

from pathlib import Path

import grpc
import pytest

from penstock.router.fleet.client import ShardClient
from penstock.router.fleet.errors import FleetError


async def test_a_shard_of_another_version_is_told(tmp_path: Path) -> None:
    """It serves under another name: it would not find an adapter where this version writes it, and answer without."""
    server, target = grpc.aio.server(), f"unix:{tmp_path}/shard"
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    server.add_generic_rpc_handlers((
        grpc.method_handlers_generic_handler("penstock.shard.v1.Shard", {"Describe": handler}),))
    server.add_insecure_port(target)
    await server.start()
    client = ShardClient(target)
    with pytest.raises(FleetError, match=r"knows no penstock\.shard\.v\d+\.Shard: shards and routers must be of one"):
        await client.describe()
    await client.close()
    await server.stop(None)
