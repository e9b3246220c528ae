"""The next turn of a conversation: only what is new in it is computed."""

from itertools import takewhile
from typing import Any

from tokenizers import Tokenizer

from tests.e2e.client import Answer, events, generate, many_clients, metric, scrape, whole
from tests.e2e.server import DEMO_MODEL, Server

BLOCK_SIZE = 16
FIRST_TURN = ("<|im_start|>system\nYou write short Python functions and say what they do.<|im_end|>\n"
              "<|im_start|>user\nWhat does os.path.join do, and when is it of use?<|im_end|>\n<|im_start|>assistant\n")
SECOND_TURN = "<|im_end|>\n<|im_start|>user\nAnd on Windows?<|im_end|>\n<|im_start|>assistant\n"


async def ask(server: Server, inputs: str) -> tuple[Answer, dict[str, Any], float]:
    """The answer, its details, and by how much the hits in the metrics grew."""
    async with many_clients() as session:
        before = await scrape(session, server.url)
        received = [event async for event in events(session, server.url, inputs, max_new_tokens=64)]
        after = await scrape(session, server.url)
    return (whole(received), received[-1]["details"],
            after["penstock_prefix_hit_tokens"] - before["penstock_prefix_hit_tokens"])


async def test_the_second_turn_computes_only_what_is_new(server: Server) -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    first, details, hits = await ask(server, FIRST_TURN)
    assert details["prefix_hit_tokens"] == hits == 0
    prompt = FIRST_TURN + first.text + SECOND_TURN
    second, details, hits = await ask(server, prompt)

    known = [*tokenizer.encode(FIRST_TURN).ids, *first.ids[:-1]]
    wanted = tokenizer.encode(prompt).ids
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(known, wanted, strict=False))))
    print(f"{hits:.0f} of {len(wanted)} tokens were found, {shared} were known")
    assert details["prefix_hit_tokens"] == hits == shared // BLOCK_SIZE * BLOCK_SIZE
    assert details["input_length"] == len(wanted)
    assert hits > len(tokenizer.encode(FIRST_TURN).ids), "generated tokens are found as well"

    async with many_clients() as session:  # the logprobs of a prompt are computed with it, whatever is known of it
        before = await metric(session, server.url, "penstock_prefix_hit_tokens")
        cold = await generate(session, server.url, prompt, max_new_tokens=64, decoder_input_details=True)
        assert await metric(session, server.url, "penstock_prefix_hit_tokens") == before
    assert cold == second
