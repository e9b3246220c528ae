"""The actors that run launchers: one for each part of a group, one for each router."""

import http.client
import json
import logging
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import ray

from penstock.cluster.child import Child, accepts, end_marked, free_ports, reset_niceness
from penstock.cluster.commands import group_command, router_command, router_settings
from penstock.cluster.config import ClusterConfig
from penstock.cluster.reports import Report, State
from penstock.cluster.scaling import load_of
from penstock.router import logs
from penstock.system import addresses

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
HTTP_SECONDS = 2.0
BACKOFF_SECONDS, MOST_BACKOFF_SECONDS = 0.5, 30.0


def machine_here(config: ClusterConfig, machine: str) -> str:
    """Returns the IP address of this machine. Raises RuntimeError if it has to be `machine`, since shards are reached
    in the clear, and is another."""
    here = str(ray.util.get_node_ip_address())
    if config.tls is None and here != machine:
        raise RuntimeError(f"`tls` is missing: routers and shards on several machines, {machine} and {here}, need it")
    return here


def ended(child: Child, machine: str) -> str:
    """Says how a launcher has ended by itself, if it has."""
    return "" if child.status is None else (
        f"its launcher on {machine} ended with {child.status}; the logs of Ray's workers there say why")


class GroupHost:
    """Runs the launcher of one part of a group, of number `rank`, once it is told to. It never starts it again: what
    the launcher itself can't mend needs a new group, maybe elsewhere."""

    def __init__(self, config: ClusterConfig, name: str, rank: int, machine: str) -> None:
        logs.configure("INFO", json_output=False)
        reset_niceness()
        self._config, self._name, self._rank = config, name, rank
        self._machine = machine_here(config, machine)
        self._host = LOOPBACK if config.tls is None else self._machine
        self._child: Child | None = None
        self._port = 0
        self._was_ready = False
        self._trouble = ""
        group = config.group
        self._master = None if group.nodes == 1 or rank else (
            self._host, free_ports(self._host, group.first_port, 1 + group.num_shard))

    def start(self, master: tuple[str, int] | None) -> None:
        """Starts the launcher, which meets those of other parts at `master`. Does nothing the second time."""
        if self._child is not None:
            return
        group = self._config.group
        try:
            taken = self._master[1] if self._master else 0
            self._port = free_ports(self._host, group.first_port, group.shards_here,
                                    range(taken, taken + 1 + group.num_shard))
        except OSError as error:
            self._trouble = str(error)
            return
        self._child = Child(group_command(self._config, self._name, self._host, self._port, self._rank, master))

    def stop(self) -> None:
        """Has the launcher end once routers have moved what runs elsewhere."""
        if self._child is not None:
            self._child.stop()

    def report(self) -> Report:
        child = self._child
        if child is None:
            return Report(State.PLACED, self._machine, master=self._master, trouble=self._trouble)
        trouble = "" if child.is_stopping else ended(child, self._machine)
        return Report(self._state(child), self._machine, addresses.joined(self._host, self._port), self._master,
                      trouble=trouble)

    def _state(self, child: Child) -> State:
        if child.status is not None:
            return State.ENDED
        if child.is_stopping:
            return State.STOPPING
        self._was_ready = self._was_ready or all(
            accepts(self._host, self._port + number) for number in range(self._config.group.shards_here))
        return State.READY if self._was_ready else State.STARTING


class RouterHost:
    """Runs the launcher of a router, from the moment it is told of groups, and again whenever it ends.

    A router that outlives its host or its launcher, to finish its requests, would take the groups from the next one: it
    is killed before that is started. Its clients go on with their answers there.
    """

    def __init__(self, config: ClusterConfig, machine: str) -> None:
        logs.configure("INFO", json_output=False)
        reset_niceness()
        self._config = config
        self._machine = machine_here(config, machine)
        self._mark = f"router of {config.name} at {config.router.port}"
        self._settings = router_settings(config)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-ray-")
        self._groups: tuple[str, ...] = ()
        self._child: Child | None = None
        self._is_to_end = False
        self._num_useless, self._not_before = 0, 0.0

    def follow(self, groups: Sequence[str]) -> None:
        """Tells the router where all groups are, of which there must be at least one."""
        if tuple(groups) != self._groups:
            file = self._file.with_suffix(".new")
            file.write_text(json.dumps({"groups": list(groups)}), encoding="utf-8")  # which is YAML, too
            file.replace(self._file)
            self._groups = tuple(groups)
        self._ensure()

    def stop(self) -> None:
        """Has the router end once its requests have finished."""
        self._is_to_end = True
        if self._child is not None:
            self._child.stop()

    def report(self) -> Report:
        self._ensure()
        url = f"http{'s' * self._is_tls}://{addresses.joined(self._machine, self._config.router.port)}"
        child = self._child
        if child is None:
            return Report(State.ENDED if self._is_to_end else State.PLACED, self._machine, url)
        if child.status is not None or child.is_stopping:
            state = State.STOPPING if child.status is None else State.ENDED if self._is_to_end else State.STARTING
            return Report(state, self._machine, url, trouble="" if self._is_to_end else ended(child, self._machine))
        is_ready, text = self._ask("/readyz") is not None, self._ask("/metrics")
        self._num_useless = 0 if is_ready else self._num_useless
        trouble = "" if text is not None or not is_ready else "the router does not tell its metrics: nothing is scaled"
        return Report(State.READY if is_ready else State.STARTING, self._machine, url,
                      load=load_of(text) if text is not None else None, trouble=trouble)

    @property
    def _file(self) -> Path:
        return Path(self._folder.name) / "groups.yaml"

    @property
    def _is_tls(self) -> bool:
        return self._settings["ssl_certfile"] is not None

    def _ensure(self) -> None:
        """Starts the router if it does not run though it should, and not too often."""
        if self._is_to_end or not self._groups or time.monotonic() < self._not_before:
            return
        if self._child is not None:
            if self._child.status is None:
                return
            log.warning("the router's launcher ended with %s, starting it again", self._child.status)
        self._not_before = time.monotonic() + min(MOST_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** self._num_useless)
        self._num_useless += 1
        if number := end_marked(self._mark):
            log.warning("%d processes of the router before this one were left, and are killed", number)
        self._child = Child(router_command(self._config, str(self._file)), self._mark)

    def _ask(self, path: str) -> str | None:
        """Returns the answer of the router, or None if it gives none."""
        port = self._config.router.port
        connection = http.client.HTTPSConnection(
            LOOPBACK, port, timeout=HTTP_SECONDS, context=_unverified()) if self._is_tls else (
            http.client.HTTPConnection(LOOPBACK, port, timeout=HTTP_SECONDS))
        try:
            connection.request("GET", path, headers=self._key())
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return text if answer.status == 200 else None

    def _key(self) -> dict[str, str]:
        keys = self._settings["metrics_key"]
        return {"Authorization": f"Bearer {keys[0]}"} if keys else {}


def _unverified() -> ssl.SSLContext:
    """Returns the settings of a connection to this machine's own router, whose certificate is for another name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
