"""For each field of a body of TEI's, two bodies that differ in it alone."""

from typing import Any

Body = dict[str, Any]

LONG = " ".join(f"word {number}" for number in range(20))
"""A text of more tokens than the servers take."""
BODIES: dict[str, Body] = {
    "/embed": {"inputs": "one"}, "/embed_all": {"inputs": "one"}, "/embed_sparse": {"inputs": "one"},
    "/similarity": {"inputs": {"source_sentence": "one", "sentences": ["two"]}, "parameters": {}},
    "/predict": {"inputs": "one"}, "/rerank": {"query": "q", "texts": ["one"]}, "/tokenize": {"inputs": "one"},
    "/decode": {"ids": [70, 71]}, "/v1/embeddings": {"input": "one", "encoding_format": "float"},
    "/embeddings": {"input": "one"}, "/vertex": {"instances": [{"inputs": "one"}]}, "/": {"inputs": "one"},
    "/invocations": {"inputs": "one"},
}
"""A body that each route takes."""
WHOLE: dict[str, Body] = {"/rerank": {**BODIES["/rerank"], "return_text": True}}
"""Those whose answers have more fields."""
_VALUES: Body = {
    "inputs": "two", "truncate": True, "truncation_direction": "Left", "prompt_name": "query", "normalize": False,
    "dimensions": 3, "source_sentence": "three", "sentences": ["four"], "raw_scores": True, "query": "r",
    "texts": ["two"], "return_text": True, "add_special_tokens": False, "ids": [72], "skip_special_tokens": False,
    "input": "two", "encoding_format": "base64", "instances": [{"inputs": "two"}], "model": "other", "user": "Ann",
}
_TEXTS = {"/rerank": "texts", "/similarity": "inputs"}


def bodies(path: str, outer: str, name: str) -> tuple[Body, Body]:
    """Returns a body without the field `name`, or with its usual value, and one that uses it."""
    body = BODIES[path]
    if name in ("truncate", "truncation_direction"):
        field = _TEXTS.get(path, "inputs")
        body = {**body, field: _long(body[field])}
    if name == "inputs" and isinstance(body["inputs"], dict):
        return body, {**body, "inputs": {**body["inputs"], "sentences": ["four"]}}
    if name == "parameters":
        return body, {**body, "parameters": {"prompt_name": "query"}}
    if name == "skip_special_tokens":
        body = {"ids": [0, 1, 2, 3]}
    fields = dict(body[outer] if outer else body)
    if name == "truncation_direction":
        fields["truncate"] = True
    used = {**fields, name: _VALUES[name]}
    return ({**body, outer: fields}, {**body, outer: used}) if outer else (fields, used)


def _long(texts: Any) -> Any:
    if isinstance(texts, dict):
        return {**texts, "source_sentence": LONG}
    return [LONG] if isinstance(texts, list) else LONG
