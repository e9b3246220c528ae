"""`python -m penstock.shard` loads a model, measures, then listens for a router."""

import logging
import signal
import sys
from collections.abc import Sequence

from penstock.shard import log, process
from penstock.shard.config import ShardConfig
from penstock.shard.progress import LoadProgress


def main(argv: Sequence[str]) -> None:
    config = ShardConfig.from_argv(argv)
    # Until something is served there is nothing to end in order, and Python would not notice in the middle of a wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    watch = None if config.parent_pid is None else process.ParentWatch(config.parent_pid, config.orphan_seconds)
    log.start(config.json_output, config.rank)
    try:
        # Importing torch takes a second, and choosing kernels, which importing one of them does, may be an error.
        from penstock.kernels import dispatch

        dispatch.configure(config.device, config.deterministic)
        from penstock.shard.startup.run import run

        run(config, LoadProgress(config.signs_fd, has_bars=config.rank == 0 and not config.json_output), watch)
    except (ValueError, OSError) as error:
        if config.json_output:
            logging.error("%s", error)
        else:
            print(f"shard {config.rank}: {error}", file=sys.stderr)
        process.leave(1)
    except Exception:
        logging.exception("the shard ends")
        process.leave(1)
    process.leave(0, config.socket_path, watch)


if __name__ == "__main__":
    main(sys.argv[1:])
