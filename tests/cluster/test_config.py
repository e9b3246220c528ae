"""What cluster.yaml may say, and what is refused by the name of its field."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.config import parse, read
from penstock.system.arguments import InvalidArgument
from tests.paths import ROOT

EXAMPLE = ROOT / "deploy" / "ray" / "cluster.yaml"


def described(**more: Any) -> dict[str, Any]:
    return {"name": "demo", "model": "/model", **more}


def test_the_least_that_can_be_said():
    config = parse(described(), "cluster.yaml")
    assert (config.address, config.router.port, config.scaling.max_groups, config.tls) == ("auto", 3000, 1, None)


def test_the_example_can_be_read():
    assert read(EXAMPLE).scaling.max_groups > 1


@pytest.mark.parametrize(("content", "message"), [
    ([1], "cluster.yaml must have keys, such as `name` and `model`"),
    ({"name": "demo"}, "cluster.yaml: `model`: Field required"),
    (described(name="Demo"), "`name`: String should match pattern"),
    (described(models="x"), "`models`: Extra inputs are not permitted. Given: 'x'"),
    (described(group={"num_shards": 2}), "`group.num_shards`: Extra inputs are not permitted"),
    (described(group={"num_shard": 0}), "`group.num_shard`: Input should be greater than or equal to 1. Given: 0"),
    (described(group={"num_shard": 3, "nodes": 2}), "`group.nodes`: 3 shards can't be dealt out to 2 nodes"),
    (described(group={"num_shard": 2, "nodes": 2, "placement": "STRICT_PACK"}), "`group.placement`: STRICT_PACK is"),
    (described(group={"num_shard": 2, "nodes": 2}), "`group.placement`: STRICT_PACK is"),
    (described(group={"gpus": 2}), "`group.gpus`: a shard computes on one GPU at most, not on 2"),
    (described(group={"cpus": 0}), "`group.cpus`: Input should be greater than 0"),
    (described(group={"options": {"device": None}}), "`group.options`: `device` is to be a text"),
    (described(scaling={"min_groups": 3, "max_groups": 2}), "`scaling.max_groups`: 2 is below `min_groups`, 3"),
    (described(scaling={"min_groups": 3}), "`scaling.max_groups`: 1 is below `min_groups`, 3"),
    (described(router={"port": 26001}), "`router.port`, 26001, is among the 2000 ports from `group.first_port`, 26000"),
    (described(tls={"ca": "/ca.pem", "cert": "/cert.pem"}), "`tls.key`: Field required"),
])
def test_what_is_wrong_is_named(content, message):
    with pytest.raises(InvalidArgument) as refusal:
        parse(content, "cluster.yaml")
    assert message in refusal.value.message


def test_options_may_have_dashes():
    options = {"kv-memory": "1GiB", "max_batch_size": 8, "deterministic": True}
    assert parse(described(group={"options": options}), "cluster.yaml").group.options == {
        "kv_memory": "1GiB", "max_batch_size": 8, "deterministic": True}


def test_every_mistake_is_told():
    with pytest.raises(InvalidArgument) as refusal:
        parse({"model": "", "scaling": {"max_groups": "many"}}, "cluster.yaml")
    assert [line.split("`")[1] for line in refusal.value.message.splitlines()] == ["name", "model",
                                                                                  "scaling.max_groups"]


def test_a_file_that_is_no_yaml(tmp_path: Path):
    file = tmp_path / "cluster.yaml"
    file.write_text("name: [")
    with pytest.raises(InvalidArgument, match="is no YAML"):
        read(file)
    with pytest.raises(InvalidArgument, match=r"cannot read .*No such file"):
        read(tmp_path / "other.yaml")


def test_bounds_can_be_changed_while_it_runs_and_groups_can_not():
    config = parse(described(), "cluster.yaml")
    assert config.differences(parse(described(scaling={"max_groups": 7}), "cluster.yaml")) == []
    assert config.differences(parse(described(group={"cpus": 2}), "cluster.yaml")) == ["group"]
