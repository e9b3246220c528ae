"""The command lines of launchers, and options in cluster.yaml that these would refuse."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.commands import check, given, group_command, router_command
from penstock.cluster.config import ClusterConfig, parse
from penstock.system.arguments import InvalidArgument
from tests.certificates import authority, flags


def described(**more: Any) -> ClusterConfig:
    return parse({"name": "demo", "model": "/model", **more}, "cluster.yaml")


def test_a_group():
    config = described(group={"num_shard": 2, "cpus": 3, "options": {"kv_memory": "64MiB", "deterministic": True}})
    check(config)
    assert group_command(config, "demo-1", "127.0.0.1", 26000) == [
        "group", "/model", "--listen", "127.0.0.1:26000", "--group-name", "demo-1", "--num-shard", "2",
        "--kv-memory=64MiB", "--deterministic", "--threads=3"]


def test_one_part_of_a_group():
    config = described(group={"num_shard": 4, "nodes": 2, "placement": "PACK"})
    check(config)
    assert group_command(config, "demo-1", "10.0.0.2", 26000, 1, ("10.0.0.1", 26500))[5:-1] == [
        "demo-1", "--num-shard", "4", "--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1",
        "--master-port", "26500"]


def test_threads_that_are_chosen_stay():
    config = described(group={"cpus": 3, "options": {"threads": 8}})
    assert group_command(config, "demo-1", "127.0.0.1", 26000)[-1] == "--threads=8"


def test_a_router():
    config = described(router={"port": 8080, "options": {"max_concurrent_requests": 9}})
    check(config)
    assert router_command(config, "/tmp/groups.yaml") == [
        "serve", "/model", "--groups", "/tmp/groups.yaml", "--hostname", "0.0.0.0", "--port", "8080",
        "--max-concurrent-requests=9"]


def test_flags_lists_and_what_is_off():
    assert given({"json_output": True, "env": False, "api_key": ["a", "b"]}) == [
        "--json-output", "--api-key=a", "--api-key=b"]


@pytest.mark.parametrize(("part", "options", "message"), [
    ("group", {"kv_memry": 1}, "`group.options`: No such option '--kv-memry'"),
    ("group", {"kv_memory": "much"}, "'--kv-memory' (env var: 'KV_MEMORY'): 'much' is not a number of bytes"),
    ("group", {"num_shard": 2}, "`group.options.num_shard` is not to be chosen here: give `group.num_shard`"),
    ("group", {"master-port": 2}, "`group.options.master_port` is not to be chosen here: each process has"),
    ("group", {"listen": "10.0.0.1:1"}, "`group.options.listen` is not to be chosen here: each process has"),
    ("router", {"groups": "x"}, "`router.options.groups` is not to be chosen here: each process has"),
    ("router", {"kv_memory": "1GiB"}, "`router.options`: --kv-memory concerns shards"),
    ("router", {"max_input_tokens": 9, "max_total_tokens": 4}, "`router.options`: `max_input_tokens`(9) must be <"),
])
def test_what_commands_would_refuse_is_refused_before(part, options, message):
    with pytest.raises(InvalidArgument) as refusal:
        check(described(**{part: {"options": options}}))
    assert message in refusal.value.message


def test_certificates_go_to_both_ends(tmp_path: Path):
    tls = authority(tmp_path / "ca").issue("machine")
    config = described(tls={"ca": tls.ca, "cert": tls.cert, "key": tls.key, "name": "others"})
    check(config)
    words = [*flags(tls), "--shard-tls-name", "others"]
    assert router_command(config, "groups.yaml")[-8:] == words
    assert group_command(config, "demo-1", "10.0.0.1", 26000)[-9:-1] == words


def test_certificates_that_are_not_there():
    files = {"ca": "/none/ca.pem", "cert": "/none/cert.pem", "key": "/none/key.pem"}
    with pytest.raises(InvalidArgument, match="cannot read /none/ca"):
        check(described(tls=files))
