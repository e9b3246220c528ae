"""Streams answers one after the other, and writes the longest pause between two tokens of one of them, in seconds:
`python -m tests.e2e.pause_watch URL KEY FILE`, a process of its own, whose clock nobody else's work stops."""

import json
import sys
import time
import urllib.request
from pathlib import Path

BODY = json.dumps({"inputs": "def open(path):", "parameters": {"max_new_tokens": 400}}).encode()


def watch(url: str, key: str, found: Path) -> None:
    longest = 0.0
    while True:
        request = urllib.request.Request(f"{url}/generate_stream", BODY, {
            "content-type": "application/json", "authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            last = time.monotonic()
            for number, line in enumerate(line for line in response if line.startswith(b"data:")):
                assert b'"error":' not in line, line
                now = time.monotonic()
                if number and now - last > longest:
                    longest = now - last
                    found.write_text(str(longest))
                last = now


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
