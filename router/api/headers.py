"""TGI's headers: what a request was, and where its time went."""

from collections.abc import Sequence

from router.api.answer import Answer
from router.api.service import Service


def request_headers(service: Service, inputs: str) -> dict[str, str]:
    """Of every answer, known before it begins."""
    return {"x-compute-type": service.info.compute_type, "x-compute-characters": str(len(inputs))}


def time_headers(answers: Sequence[Answer]) -> dict[str, str]:
    """Of a whole answer; times in milliseconds. Of several answers the sums."""
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
        "x-prompt-tokens": str(sum(len(answer.request.input_ids) for answer in answers)),
        "x-generated-tokens": str(sum(num_tokens)),
        **{name: str(int(1000 * seconds)) for name, seconds in milliseconds.items()},
    }
