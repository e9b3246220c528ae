"""The answers that many routes may give, by their statuses."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.router.api.http.route import JSON, TEXT, Reply
from penstock.router.api.openai import replies as openai
from penstock.router.api.tgi import replies as tgi

UNAUTHORIZED = Reply("The key is missing or wrong.", headers={"www-authenticate": "Names the scheme, `Bearer`."})
READING = {
    400: Reply("The body is not JSON.", {TEXT: str}),
    401: UNAUTHORIZED,
    408: Reply("The body did not arrive in time.", {TEXT: str}),
    413: Reply("The body is longer than the server's limit.", {TEXT: str}),
    415: Reply("The content type is not JSON.", {TEXT: str}),
    422: Reply("The body does not have the route's fields (plain text), or a value breaks a rule (JSON).",
               {TEXT: str, JSON: tgi.Error}),
    500: Reply("The server has a fault; its log says which.", {JSON: tgi.Error}),
}
LATER = {"retry-after": "The number of seconds after which to try again."}
SPLITTING = {
    **READING,
    429: Reply("The server already has as many requests as it takes.", {JSON: tgi.Error}, LATER),
}
GENERATING = {
    **SPLITTING,
    429: Reply("The server already has as many requests as it takes, or they make this one miss its deadline, or the "
               "key has spent its budget of the day, or what it may have in this time.", {JSON: tgi.Error}, LATER),
    409: Reply("The answer that is to be gone on with or repeated is another model's, or of other numerics.",
               {JSON: tgi.Error}),
    424: Reply("The request failed while its answer was generated.", {JSON: tgi.Error}),
    503: Reply("No shards are running that could compute an answer.", {JSON: tgi.Error}, LATER),
}
OPENAI_READING = {
    400: Reply("The body is not JSON, or does not have the route's fields, or a value breaks a rule."),
    401: Reply(UNAUTHORIZED.meaning, headers=UNAUTHORIZED.headers),
    **{status: Reply(READING[status].meaning) for status in (408, 413, 415, 500)},
}
OPENAI_GENERATING = {
    **OPENAI_READING,
    **{status: Reply(reply.meaning, headers=reply.headers) for status, reply in GENERATING.items()
       if status in (409, 424, 429, 503)},
    404: Reply("The adapter of this name was unloaded."),
}


def refusing(replies: Mapping[int, Reply]) -> dict[int, Reply]:
    """Returns answers of OpenAI's routes with OpenAI's shape of a refusal where a status is one."""
    return {status: reply if reply.content else replace(reply, content={JSON: openai.OpenAIError})
            for status, reply in replies.items()}
