"""Why what TGI has is not there: one sentence for each name of the table that is not served."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    is_deliberate: bool = False
    """Whether it is to stay so."""


def _never(text: str) -> Reason:
    return Reason(text, is_deliberate=True)


_NGROK = _never("refused; TGI's own launcher stops at it")

REASONS: dict[tuple[str, str], Reason] = {
    ("Body of /v1/completions", "suffix"): _never(
        "refused in TGI's words, as in TGI, but by models that have learnt to fill a gap"),
    ("Answer of /v1/chat/completions: choices.message.tool_calls.function", "description"): _never(
        "null in TGI, and not OpenAI's"),
    ("Body of /v1/chat/completions: messages.content", "image_url"): Reason("refused, no model here sees"),
    ("Error types", "incomplete_generation"): _never("an answer that fails does so with `generation`"),
    ("Error types", "incomplete_generation_stream"): _never("an answer that fails does so with `generation`"),
    ("Error types", "missing_template_variable"): _never("whatever a template refuses is a `template_error`"),
    ("Error types", "stream_serialization_error"): _never("there is nothing that could not be written as JSON"),
    ("Error types", "no details"): _never("a fault of TGI's own"),
    ("Error types", "headers"): _never("a fault of TGI's own"),
    ("Metrics", "tgi_batch_total_tokens"): _never("TGI describes it, and never sets it"),
    ("Flags", "--trust-remote-code"): _never("refused; code that comes with a checkpoint is never run"),
    ("Flags", "--disable-custom-kernels"): _never("refused; KERNELS=reference serves without the compiled kernels"),
    ("Flags", "--weights-cache-override"): _never("refused; `--model-id` takes a directory"),
    ("Flags", "--ngrok"): _NGROK,
    ("Flags", "--ngrok-authtoken"): _NGROK,
    ("Flags", "--ngrok-edge"): _NGROK,
    ("Flags", "--waiting-served-ratio"): _never("accepted, and noted in the log: prefill is chunked, nothing waits"),
    ("Flags", "--max-waiting-tokens"): _never("accepted, and noted in the log: prefill is chunked, nothing waits"),
    ("Flags", "--prometheus-port"): _never("accepted, and noted in the log: as in TGI, `/metrics` is at the main port"),
    ("Flags", "--usage-stats"): _never("accepted, and noted in the log: nothing is ever sent"),
}
"""By section and name."""
