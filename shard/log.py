"""The shard's log, on stderr: lines for people, or one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """The keys that TGI's processes write."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return json.dumps({
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "fields": {"message": message},
            "target": record.name,
            "rank": self._rank,
        })


def start(json_output: bool, rank: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter(f"%(asctime)s %(levelname)s shard-{rank}: %(message)s")
    handler.setFormatter(JsonFormatter(rank) if json_output else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
