"""The names of TGI 3.3.7: facts of its interface."""

ROUTES = (
    "POST /", "GET /", "POST /generate", "POST /generate_stream", "POST /v1/chat/completions", "POST /v1/completions",
    "POST /vertex", "POST /invocations", "POST /tokenize", "POST /chat_tokenize", "GET /info", "GET /health",
    "GET /ping", "GET /metrics", "GET /v1/models", "GET /docs", "GET /api-doc/openapi.json",
)
OPTIONAL_ROUTES = (
    "POST $AIP_PREDICT_ROUTE", "GET $AIP_HEALTH_ROUTE", "GET /v2", "GET /v2/health/live", "GET /v2/health/ready",
    "GET /v2/models/{model}/versions/{version}", "GET /v2/models/{model}/versions/{version}/ready",
    "POST /v2/models/{model}/versions/{version}/infer",
)
"""Of builds with other features than the stock image's."""

PARAMETERS = (
    "best_of", "temperature", "repetition_penalty", "frequency_penalty", "top_k", "top_p", "typical_p", "do_sample",
    "max_new_tokens", "return_full_text", "stop", "truncate", "watermark", "details", "decoder_input_details", "seed",
    "top_n_tokens", "grammar", "adapter_id")
CHAT = (
    "model", "messages", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens",
    "max_completion_tokens", "n", "presence_penalty", "stop", "stream", "seed", "temperature", "top_p", "tools",
    "tool_prompt", "tool_choice", "response_format", "stream_options")
FIELDS = {
    "/": ("inputs", "parameters", "stream"),
    "/generate": ("inputs", "parameters"),
    "/generate: parameters": PARAMETERS,
    "/generate_stream": ("inputs", "parameters"),
    "/generate_stream: parameters": tuple(
        name for name in PARAMETERS if name not in ("best_of", "decoder_input_details")),
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions: messages": ("role", "content", "name", "tool_calls", "tool_call_id"),
    "/v1/chat/completions: messages.content": ("type", "text", "image_url"),
    "/v1/chat/completions: tools": ("type", "function"),
    "/v1/completions": (
        "model", "prompt", "max_tokens", "temperature", "top_p", "stream", "seed", "suffix", "repetition_penalty",
        "frequency_penalty", "stop"),
    "/vertex": ("instances",),
    "/tokenize": ("inputs", "parameters"),
    "/chat_tokenize": ("messages", "tools", "tool_prompt"),
}
"""By route, or by route and the field that they are part of: what bodies have."""

COMPLETION = ("id", "object", "created", "model", "system_fingerprint", "choices", "usage")
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
TOKEN = ("id", "text", "logprob", "special")
ANSWERS = {
    "/": ("generated_text", "details"),
    "/generate": ("generated_text", "details"),
    "/generate: details": ("finish_reason", "generated_tokens", "seed", "prefill", "tokens", "best_of_sequences",
                           "top_tokens"),
    "/generate: details.tokens": TOKEN,
    "/generate: details.prefill": ("id", "text", "logprob"),
    "/generate: details.best_of_sequences": ("generated_text", "finish_reason", "generated_tokens", "seed", "prefill",
                                             "tokens", "top_tokens"),
    "/v1/chat/completions": COMPLETION,
    "/v1/chat/completions: choices": ("index", "message", "logprobs", "finish_reason"),
    "/v1/chat/completions: choices.message": ("role", "content", "tool_calls"),
    "/v1/chat/completions: choices.message.tool_calls": ("id", "type", "function"),
    "/v1/chat/completions: choices.message.tool_calls.function": ("name", "arguments", "description"),
    "/v1/chat/completions: choices.logprobs.content": ("token", "logprob", "top_logprobs"),
    "/v1/chat/completions: usage": USAGE,
    "/v1/completions": COMPLETION,
    "/v1/completions: choices": ("index", "text", "logprobs", "finish_reason"),
    "/v1/completions: usage": USAGE,
    "/vertex": ("predictions",),
    "/tokenize": ("id", "text", "start", "stop"),
    "/chat_tokenize": ("tokenize_response", "templated_text"),
    "/info": ("model_id", "model_sha", "model_pipeline_tag", "max_concurrent_requests", "max_best_of",
              "max_stop_sequences", "max_input_tokens", "max_total_tokens", "validation_workers",
              "max_client_batch_size", "router", "version", "sha", "docker_label"),
    "/v1/models": ("object", "data"),
    "/v1/models: data": ("id", "object", "created", "owned_by"),
}
"""What whole answers have."""

EVENTS = {
    "/generate_stream": ("index", "token", "top_tokens", "generated_text", "details", "error", "error_type"),
    "/generate_stream: token": TOKEN,
    "/generate_stream: details": ("finish_reason", "generated_tokens", "seed", "input_length"),
    "/v1/chat/completions": COMPLETION,
    "/v1/chat/completions: choices": ("index", "delta", "logprobs", "finish_reason"),
    "/v1/chat/completions: choices.delta": ("role", "content", "tool_calls"),
    "/v1/chat/completions: choices.delta.tool_calls": ("index", "id", "type", "function"),
    "/v1/chat/completions: error": ("message", "http_status_code"),
    "/v1/completions": COMPLETION,
    "/v1/completions: choices": ("index", "text", "logprobs", "finish_reason"),
    "/v1/completions: error": ("message", "http_status_code"),
}
"""What the events of streams have."""

TIMES = ("x-compute-type", "x-compute-characters", "x-total-time", "x-validation-time", "x-queue-time",
         "x-inference-time", "x-time-per-token", "x-prompt-tokens", "x-generated-tokens")
STREAMED = ("content-type", "cache-control", "x-accel-buffering", "x-compute-type", "x-compute-characters")
HEADERS = {
    "/": ("x-compute-time", *TIMES),
    "/generate": ("x-compute-time", *TIMES),
    "/generate_stream": STREAMED,
    "/v1/chat/completions": ("x-compute-time", *TIMES),
    "/v1/chat/completions, streamed": STREAMED,
    "/v1/completions": TIMES,
    "/v1/completions, streamed": STREAMED,
    "/invocations": ("x-compute-time", *TIMES),
}

ERROR_TYPES = {
    "generation": 424, "overloaded": 429, "validation": 422, "incomplete_generation": 500,
    "incomplete_generation_stream": 500, "template_error": 422, "missing_template_variable": 422, "tool_error": 422,
    "stream_serialization_error": 500, "healthcheck": 503, "suffix not supported": 422, "batch size exceeded": 422,
    "no details": 500, "headers": 500, "Input validation error": 422,
}
"""With their statuses."""

METRICS = {
    "tgi_request_count": (), "tgi_request_success": (), "tgi_request_failure": ("err",),
    "tgi_batch_inference_count": ("method",), "tgi_batch_inference_success": ("method",),
    "tgi_batch_inference_failure": ("method",), "tgi_batch_concat": ("reason",), "tgi_queue_size": (),
    "tgi_batch_current_size": (), "tgi_batch_current_max_tokens": (), "tgi_batch_max_total_tokens": (),
    "tgi_batch_total_tokens": (), "tgi_request_duration": (), "tgi_request_validation_duration": (),
    "tgi_request_queue_duration": (), "tgi_request_inference_duration": (),
    "tgi_request_mean_time_per_token_duration": (), "tgi_batch_inference_duration": ("method",),
    "tgi_batch_forward_duration": ("method",), "tgi_batch_decode_duration": ("method",),
    "tgi_batch_filter_duration": ("method",), "tgi_batch_concat_duration": ("method",),
    "tgi_request_input_length": (), "tgi_request_generated_tokens": (), "tgi_request_max_new_tokens": (),
    "tgi_batch_next_size": (), "tgi_request_skipped_tokens": (),
}
"""With their labels."""

FLAGS = (
    "--model-id", "--revision", "--validation-workers", "--sharded", "--num-shard", "--quantize", "--speculate",
    "--dtype", "--kv-cache-dtype", "--trust-remote-code", "--max-concurrent-requests", "--max-best-of",
    "--max-stop-sequences", "--max-top-n-tokens", "--max-input-tokens", "--max-input-length", "--max-total-tokens",
    "--waiting-served-ratio", "--max-batch-prefill-tokens", "--max-batch-total-tokens", "--max-waiting-tokens",
    "--max-batch-size", "--cuda-graphs", "--hostname", "--port", "--prometheus-port", "--shard-uds-path",
    "--master-addr", "--master-port", "--huggingface-hub-cache", "--weights-cache-override",
    "--disable-custom-kernels", "--cuda-memory-fraction", "--rope-scaling", "--rope-factor", "--json-output",
    "--otlp-endpoint", "--otlp-service-name", "--cors-allow-origin", "--api-key", "--watermark-gamma",
    "--watermark-delta", "--ngrok", "--ngrok-authtoken", "--ngrok-edge", "--tokenizer-config-path",
    "--disable-grammar-support", "--env", "--max-client-batch-size", "--lora-adapters", "--usage-stats",
    "--payload-limit", "--enable-prefill-logprobs", "--graceful-termination-timeout",
)
