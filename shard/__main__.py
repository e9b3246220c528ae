"""`python -m penstock.shard` loads a model, measures, then listens for a router."""

import gc
import importlib
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from penstock.shard import log, process
from penstock.shard.communication.errors import PeerLost
from penstock.shard.config import ShardConfig
from penstock.shard.devices import allocation
from penstock.shard.progress import LoadProgress
from penstock.shard.startup import politely
from penstock.shard.startup.phases import Phases
from penstock.system.names import as_given
from penstock.system.signs import PEER_LOST

NO_MEMORY = ("Cannot allocate memory", "can't allocate memory", "can't start new thread", "bad_alloc")
"""The texts of the errors that Python, torch and C++ raise where the system refuses memory."""


def main(argv: Sequence[str]) -> None:
    phases = Phases()
    phases.end("Python")
    config = ShardConfig.from_argv(argv)
    # Until something is served there is nothing to end in order, and Python would not notice in the middle of a wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch = None if config.parent_pid is None else process.ParentWatch(
        config.parent_pid, config.orphan_seconds, config.keeps_folder,
        config.folder or (config.socket_path and config.socket_path.parent))
    log.start(config.json_output, config.rank, config.log_level, config.served_name)
    try:
        # Importing torch takes a second, and a tenth more with collections. Choosing kernels may be an error.
        gc.disable()
        if config.device != "cpu":
            allocation.prepare()
        if config.gives_way:
            importlib.import_module("numpy")  # whose threads stay, and are to be as others
        run = politely.call(partial(_import, config)) if config.gives_way else _import(config)
        gc.enable()
        phases.end("imports")
        progress = LoadProgress(config.signs_fd, is_shown=config.rank == 0, has_bars=config.has_bars,
                                may_rest=config.may_rest)
        run(config, progress, watch, phases)
    except Exception as error:
        if (sentence := _sentence(error)) is not None:
            sentence = as_given(sentence, config.model, config.made_of)
        if sentence is None:
            logging.exception("the shard ends")
        elif config.json_output:
            logging.error("%s", sentence)
        else:
            print(f"shard {config.rank}: {sentence}", file=sys.stderr)
        process.leave(PEER_LOST if isinstance(error, PeerLost) else 1)
    process.leave(0, config.socket_path, watch)


def _import(config: ShardConfig) -> Callable[[ShardConfig, LoadProgress, process.ParentWatch | None, Phases], None]:
    """Returns the function that serves, once all that it needs is imported."""
    from penstock.kernels import dispatch

    dispatch.configure(config.device, config.deterministic)
    from penstock.shard.startup.run import run
    return run


def _sentence(error: Exception) -> str | None:
    """Says what is wrong with the settings, the checkpoint or the machine; None for what is our own fault."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        limited = "" if limit == resource.RLIM_INFINITY else f" within the {limit / 2**30:.2f} GiB of `ulimit -v`"
        return f"there is not enough memory{limited}: {str(error) or 'MemoryError'}"
    return str(error) if isinstance(error, (ValueError, OSError)) else None


if __name__ == "__main__":
    main(sys.argv[1:])
