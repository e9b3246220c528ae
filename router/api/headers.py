"""TGI's headers: what a request was, and where its time went."""

from router.api.answer import Answer
from router.api.service import Service


def request_headers(service: Service, inputs: str) -> dict[str, str]:
    """Of every answer, known before it begins."""
    return {"x-compute-type": service.info.compute_type, "x-compute-characters": str(len(inputs))}


def time_headers(answer: Answer) -> dict[str, str]:
    """Of a whole answer; times in milliseconds."""
    assert answer.ending is not None
    times, num_tokens = answer.times, answer.ending.num_tokens
    milliseconds = {
        "x-total-time": times.total,
        "x-validation-time": times.validation,
        "x-queue-time": times.queue,
        "x-inference-time": times.inference,
        "x-time-per-token": times.inference / num_tokens,
    }
    return {
        "x-prompt-tokens": str(len(answer.request.input_ids)),
        "x-generated-tokens": str(num_tokens),
        **{name: str(int(1000 * seconds)) for name, seconds in milliseconds.items()},
    }
