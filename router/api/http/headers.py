"""Headers: what a request was, and where its time went, as TGI has them; which answer it is, and is to be."""

from collections.abc import Sequence

from aiohttp import hdrs, web

from penstock.router.generation.answer import Answer
from penstock.router.generation.identity import HEADERS, Wish, checked_key
from penstock.router.generation.service import Service
from penstock.router.routing import header_text
from penstock.system.release import VERSION

SERVER_NAME = f"penstock/{VERSION}"
"""The value of the header `Server` of all responses."""


async def name_server(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the server's name to a response that is about to be sent."""
    response.headers[hdrs.SERVER] = SERVER_NAME


def request_headers(service: Service, *prompts: str | tuple[int, ...]) -> dict[str, str]:
    """Returns the headers that are known before an answer begins. Prompts of token ids have no characters."""
    num_characters = sum(len(prompt) for prompt in prompts if isinstance(prompt, str))
    return {"x-compute-type": service.info.compute_type, "x-compute-characters": str(num_characters)}


def wish_of(request: web.Request) -> Wish:
    """Returns the wish of a request's headers. Raises ValidationError for a key that is too long."""
    resume_after, repeat, key, output_ids = (
        header_text(request, name) or None if name in request.headers else None for name in HEADERS)
    return Wish(resume_after, repeat, checked_key(key, HEADERS.key), output_ids, takes_events(request))


def takes_events(request: web.Request) -> bool:
    """Tells whether the client of a stream reads all of an event: its id, and when to try again. It says so by naming
    the type of streams, or by having an id already. Others may not expect any line but `data`: vLLM's load generator
    reads each event as JSON, and to OpenAI's client a comment is an empty event once an id has come."""
    return hdrs.LAST_EVENT_ID in request.headers or "text/event-stream" in request.headers.get(hdrs.ACCEPT, "")


def compute_time(answers: Sequence[Answer]) -> dict[str, str]:
    """Returns the header with the seconds until the last of the answers had ended."""
    return {"x-compute-time": f"{max(answer.times.total for answer in answers):.9f}"}


def time_headers(answers: Sequence[Answer], per_prompt: int = 1) -> dict[str, str]:
    """Returns the headers with times in milliseconds, summed over the answers; each prompt has `per_prompt` of them."""
    times = [answer.times for answer in answers]
    num_tokens = [answer.ending.num_tokens for answer in answers if answer.ending is not None]
    milliseconds = {
        "x-total-time": sum(time.total for time in times),
        "x-validation-time": sum(time.validation for time in times),
        "x-queue-time": sum(time.queue for time in times),
        "x-inference-time": sum(time.inference for time in times),
        "x-time-per-token": sum(time.inference for time in times) / sum(num_tokens),
    }
    return {
        "x-prompt-tokens": str(sum(len(answer.request.input_ids) for answer in answers[::per_prompt])),
        "x-generated-tokens": str(sum(num_tokens)),
        **{name: str(int(1000 * seconds)) for name, seconds in milliseconds.items()},
    }
