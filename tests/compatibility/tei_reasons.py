"""Why what TEI has is not there: one sentence for each name of the table that is not served."""

from tests.compatibility.reasons import Reason


def _never(text: str) -> Reason:
    return Reason(text, is_deliberate=True)


TEI_REASONS: dict[tuple[str, str], Reason] = {
    **{("Metrics", f"te_{kind}_{what}"): _never("`te_request_…` has all; `penstock_requests` tells routes apart")
       for kind in ("embed", "predict") for what in (
           "count", "success", "duration", "tokenization_duration", "queue_duration", "inference_duration")},
    ("Flags", "--tokenization-workers"): _never("here `--validation-workers`"),
    ("Flags", "--served-model-name"): _never("the model answers to every name"),
    ("Flags", "--dense-path"): _never("modules.json says what comes behind the pooling"),
    ("Flags", "--hf-api-token"): _never("the variable HF_TOKEN is read"),
    ("Flags", "--hf-token"): _never("the variable HF_TOKEN is read"),
    ("Flags", "--uds-path"): _never("here `--shard-uds-path`"),
    ("Flags", "--disable-spans"): _never("spans are made for `--otlp-endpoint` alone"),
    ("Flags", "--prometheus-port"): _never("accepted, and noted in the log: `/metrics` is at the main port"),
}
"""By section and name."""
