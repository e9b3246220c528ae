"""The object of a response, as clients are told of it at its beginning and at its end."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.api.responses.tools import told_again
from penstock.router.errors import RouterError


def begun(
    body: ResponseBody, id: str, created_at: int, model: str, tier: str | None, is_stored: bool
) -> dict[str, Any]:
    """Returns a response of which nothing has come yet. What was not asked for has the value by which it was made, and
    tools that are not served are left out."""
    text = body.text.model_dump(exclude_unset=True, by_alias=True) if body.text else {}
    choice = body.tool_choice
    return {
        "id": id, "object": "response", "created_at": created_at, "completed_at": None, "status": "in_progress",
        "error": None, "incomplete_details": None, "background": bool(body.background),
        "instructions": body.instructions, "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls, "metadata": body.metadata or {}, "model": model, "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id, "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": None, "summary": None,
                      **(body.reasoning.model_dump(exclude_unset=True) if body.reasoning else {})},
        "safety_identifier": body.safety_identifier, "service_tier": tier or "default", "store": is_stored,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"verbosity": "medium", **text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice if isinstance(choice, str)
        else choice.model_dump(exclude_unset=True),
        "tools": told_again(body.tools), "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": body.truncation or "disabled", "usage": None, "user": body.user,
    }


def ended(
    response: Mapping[str, Any], output: Sequence[dict[str, Any]], usage: dict[str, Any], completed_at: int,
    is_cut: bool,
) -> dict[str, Any]:
    """Returns the response with its output; one that `is_cut` has reached the limit of its tokens."""
    details = {"reason": "max_output_tokens"} if is_cut else None
    return {**response, "status": "incomplete" if is_cut else "completed", "incomplete_details": details,
            "completed_at": None if is_cut else completed_at, "output": [*output], "usage": usage}


def failed(response: Mapping[str, Any], error: RouterError, output: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Returns the response that has come to an error."""
    code = {400: "invalid_prompt", 422: "invalid_prompt", 429: "rate_limit_exceeded"}.get(error.status, "server_error")
    return {**response, "status": "failed", "error": {"code": code, "message": error.reason}, "output": [*output]}


def usage(input_tokens: int, cached: int, output_tokens: int, reasoning: int) -> dict[str, Any]:
    """Returns the numbers of tokens, in OpenAI's words for responses. What is computed is kept without being asked, and
    at no price, so that no tokens count as written into the cache."""
    return {
        "input_tokens": input_tokens, "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output_tokens, "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens}
