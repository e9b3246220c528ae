"""A watermark is found in what the server wrote with one, and in nothing else."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client import many_clients, stream
from tests.e2e.server import DEMO_MODEL, Server

PROMPTS = ("import os\n\n\ndef walk(path):\n", "class Reader:\n    def __init__(self", "The answer is", "def main(")
GAMMA = 0.4
"""That of the server in conftest.py."""


def z_of(text: str, gamma: float = GAMMA) -> float:
    """What `penstock detect-watermark` says of a text."""
    command = [str(Path(sys.executable).with_name("penstock")), "detect-watermark", "--json", "--gamma", str(gamma),
               str(DEMO_MODEL)]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout)["z"])


@pytest.mark.slow
async def test_generated_text_with_a_watermark_is_told_from_text_without(server: Server) -> None:
    """Retokenised, as a reader does it who has the text alone."""
    async with many_clients() as session:
        marked, plain = [await asyncio.gather(*(
            stream(session, server.url, prompt, max_new_tokens=200, ignore_eos=True, do_sample=True, seed=seed,
                   temperature=1.0, watermark=is_marked) for seed, prompt in enumerate(PROMPTS)))
            for is_marked in (True, False)]
    found, others = ([z_of(answer.text) for answer in answers] for answers in (marked, plain))
    print("with a watermark:", found, "without:", others)
    assert min(found) > 4
    assert max(map(abs, others)) < 3
    assert z_of(marked[0].text, gamma=0.1) < min(found), "the wrong gamma finds less"
