"""`python -m penstock.shard` loads a model, measures, then listens for a router."""

import gc
import logging
import signal
import sys
from collections.abc import Sequence

from penstock.shard import log, process
from penstock.shard.config import ShardConfig
from penstock.shard.progress import LoadProgress
from penstock.shard.startup.phases import Phases


def main(argv: Sequence[str]) -> None:
    phases = Phases()
    phases.end("Python")
    config = ShardConfig.from_argv(argv)
    # Until something is served there is nothing to end in order, and Python would not notice in the middle of a wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch = None if config.parent_pid is None else process.ParentWatch(config.parent_pid, config.orphan_seconds)
    log.start(config.json_output, config.rank)
    try:
        # Importing torch takes a second, and a tenth more with collections. Choosing kernels may be an error.
        gc.disable()
        from penstock.kernels import dispatch

        dispatch.configure(config.device, config.deterministic)
        from penstock.shard.startup.run import run

        gc.enable()
        phases.end("imports")
        progress = LoadProgress(config.signs_fd, has_bars=config.rank == 0 and not config.json_output)
        run(config, progress, watch, phases)
    except (ValueError, OSError) as error:
        if config.json_output:
            logging.error("%s", error)
        else:
            print(f"shard {config.rank}: {error}", file=sys.stderr)
        process.leave(1)
    except Exception:
        logging.exception("the shard ends")
        process.leave(1)
    if watch is not None and watch.is_orphan and config.socket_path:
        process.clean_up(config.socket_path)
    process.leave(0)


if __name__ == "__main__":
    main(sys.argv[1:])
