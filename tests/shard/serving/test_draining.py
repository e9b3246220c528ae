"""What a shard tells of its group's drain, over real gRPC."""

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.protos import shard_pb2
from tests.shard.processes import SECONDS, Shard, clients, running
from tests.tiny_models import DEMO_MODEL

MODEL: dict[str, Any] = {"model": str(DEMO_MODEL), "dtype": "float32", "kv_memory": 64 << 20}


def test_followers_and_health_tell_of_drain_and_router(tmp_path: Path) -> None:
    with running(tmp_path, **MODEL) as [shard], clients([shard]) as [client]:
        stub = client.stub
        first, second = (stub.Follow(shard_pb2.FollowRequest(), timeout=SECONDS) for _ in range(2))
        for is_draining in (True, False):
            assert {next(first).is_draining, next(second).is_draining} == {not is_draining}
            stub.Drain(shard_pb2.DrainRequest(is_draining=is_draining))
            assert stub.Health(shard_pb2.HealthRequest()).is_draining == is_draining
        assert next(first).is_draining is False
        for follower in (first, second):
            follower.cancel()
        stream = client.open()
        while not stub.Health(shard_pb2.HealthRequest()).has_stream:
            time.sleep(0.01)
        stream.cancel()
        while stub.Health(shard_pb2.HealthRequest()).has_stream:
            time.sleep(0.01)


def test_followers_do_not_hold_up_the_end_and_a_shard_may_drain_from_its_start(tmp_path: Path) -> None:
    shard = Shard(tmp_path, **MODEL, group="g", shards_here=1, is_draining=True)
    try:
        shard.wait_until_listening()
        with clients([shard]) as [client]:
            facts = client.stub.Describe(shard_pb2.DescribeRequest())
            assert (facts.group, facts.shards_here) == ("g", 1)
            states = client.stub.Follow(shard_pb2.FollowRequest(), timeout=SECONDS)
            assert next(states).is_draining is True
            assert shard.end() == 0
            with pytest.raises(StopIteration):  # a call that the shard had to wait for would be broken off
                next(states)
    finally:
        shard.process.kill()
        shard.process.wait()
