"""The file cluster.yaml: what is to run on a Ray cluster."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from penstock.system.arguments import InvalidArgument


def _options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if not all(isinstance(each, str | int | float) for each in (value if isinstance(value, list) else [value])):
            raise ValueError(f"`{name}` is to be a text, a number, true, false, or a list of these, and is {value!r}")
    return {name.replace("-", "_"): value for name, value in options.items()}


Options = Annotated[dict[str, Any], AfterValidator(_options)]
"""Options of a command by their names, `max_batch_size` or `max-batch-size`."""
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535)]

NUM_PORTS = 2000
"""From how many ports those of a machine's shards are drawn."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Router(_Part):
    """The router. There is one, since a group belongs to one router; more are more deployments."""

    port: Port = 3000
    cpus: Amount = 1
    """Processors that Ray reserves for it."""
    resources: dict[str, Amount] = {}
    """Other resources of Ray that it needs."""
    options: Options = {}
    """More options of `penstock serve`."""


class Group(_Part):
    """A group of shards; all groups are alike."""

    num_shard: Count = 1
    nodes: Count = 1
    """In how many parts of as many shards it is placed, each on one machine."""
    placement: Literal["STRICT_PACK", "PACK", "STRICT_SPREAD"] = "STRICT_PACK"
    cpus: Amount = 1
    """Processors that Ray reserves for each shard; it computes with as many threads."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """GPUs of each shard."""
    resources: dict[str, Amount] = {}
    """Other resources of Ray that each shard needs."""
    first_port: Annotated[int, Field(ge=1024, le=65535 - NUM_PORTS)] = 26000
    """Shards listen at ports from this one on."""
    options: Options = {}
    """More options of `penstock group`."""

    @property
    def shards_here(self) -> int:
        """How many shards each part has."""
        return self.num_shard // self.nodes

    @field_validator("gpus")
    @classmethod
    def _one_gpu(cls, gpus: int) -> int:
        if gpus > 1:
            raise ValueError(f"a shard computes on one GPU at most, not on {gpus}")
        return gpus

    @field_validator("nodes")
    @classmethod
    def _equal_parts(cls, nodes: int, info: ValidationInfo) -> int:
        num_shard = info.data.get("num_shard", nodes)
        if num_shard % nodes:
            raise ValueError(f"{num_shard} shards can't be dealt out to {nodes} nodes")
        return nodes

    @field_validator("placement")
    @classmethod
    def _fitting(cls, placement: str, info: ValidationInfo) -> str:
        nodes = info.data.get("nodes")
        if nodes is not None and nodes > 1 and placement == "STRICT_PACK":
            raise ValueError(f"STRICT_PACK is for groups on one node, and `nodes` is {nodes}: PACK puts its parts on "
                             "as few machines as it can, STRICT_SPREAD each on another")
        return placement


class Scaling(_Part):
    """How many groups there are."""

    min_groups: Count = 1
    max_groups: Count = 1
    target_waiting: Count = 4
    """The requests that may wait, for each group."""
    target_running: Count = 32
    """The requests that a group is to run at once."""
    upscale_delay: Seconds = 10
    """For how long the load must ask for more groups."""
    downscale_delay: Seconds = 300
    """For how long it must ask for fewer."""

    @field_validator("max_groups")
    @classmethod
    def _not_below(cls, max_groups: int, info: ValidationInfo) -> int:
        least = info.data.get("min_groups")
        if least is not None and max_groups < least:
            raise ValueError(f"{max_groups} is below `min_groups`, {least}")
        return max_groups


class Tls(_Part):
    """The files of mutual TLS between routers and shards, the same paths on all machines."""

    ca: Path
    cert: Path
    key: Path
    name: str | None = None
    """The name on all certificates, if it is not the usual one."""


class ClusterConfig(_Part):
    """The groups and routers that are to run on a Ray cluster."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
    """The name of this deployment; a Ray cluster may have several."""
    model: Annotated[str, Field(min_length=1)]
    """A directory that all machines have, or a name on the Hugging Face Hub."""
    address: str = "auto"
    """The Ray cluster: HOST:PORT of its GCS, or auto, which is the one that this machine is part of."""
    router: Router = Router()
    group: Group = Group()
    scaling: Scaling = Scaling()
    tls: Tls | None = None

    @model_validator(mode="after")
    def _ports_apart(self) -> Self:
        if self.group.first_port <= self.router.port < self.group.first_port + NUM_PORTS:
            raise ValueError(f"`router.port`, {self.router.port}, is among the {NUM_PORTS} ports from "
                             f"`group.first_port`, {self.group.first_port}")
        return self

    def differences(self, other: "ClusterConfig") -> list[str]:
        """Names the fields of another configuration that can't be changed while this one runs."""
        return [name for name in ("model", "router", "group", "tls") if getattr(self, name) != getattr(other, name)]


def read(file: Path) -> ClusterConfig:
    """Reads cluster.yaml. Raises InvalidArgument, which names the file and the field, if it can't be used."""
    import yaml  # type: ignore[import-untyped]  # which only `serve` needs

    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InvalidArgument(f"{file} is no YAML: {error}") from error
    return parse(content, str(file))


def parse(content: Any, file: str) -> ClusterConfig:
    """Makes the configuration of what a file holds. Raises InvalidArgument, which names the file and the field."""
    if not isinstance(content, dict):
        raise InvalidArgument(f"{file} must have keys, such as `name` and `model`")
    try:
        return ClusterConfig.model_validate(content)
    except ValidationError as error:
        raise InvalidArgument("\n".join(f"{file}: {_told(each)}" for each in error.errors())) from error


def _told(error: Any) -> str:
    field = ".".join(map(str, error["loc"]))
    message = error["msg"].removeprefix("Value error, ")
    given = "" if error["type"] in ("missing", "value_error") else f". Given: {error['input']!r}"
    return f"`{field}`: {message}{given}" if field else message
