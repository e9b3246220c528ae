"""The routes of messages, and those that Anthropic's clients share with OpenAI's."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.router.api.anthropic import messages, models, replies
from penstock.router.api.anthropic.bodies import CountBody, MessagesBody
from penstock.router.api.anthropic.failures import OVERLOADED, REQUEST_ID
from penstock.router.api.http.access import Handler
from penstock.router.api.http.route import EVENTS, JSON, Reply, Route
from penstock.router.api.openai import models as openai_models
from penstock.router.api.openai import replies as openai
from penstock.router.api.usual_replies import OPENAI_GENERATING, OPENAI_READING

ANTHROPIC = "Anthropic"
"""The heading of the routes in the OpenAPI document."""
_REQUEST_ID = {REQUEST_ID: "The request's id."}
_READING = {**OPENAI_READING, 429: OPENAI_GENERATING[429], 404: Reply("There is no such model.")}
_GENERATING = {
    **_READING, **{status: OPENAI_GENERATING[status] for status in (404, 409, 424)},
    OVERLOADED: OPENAI_GENERATING[503]}


def _refusing(replied: Mapping[int, Reply]) -> dict[int, Reply]:
    """Returns answers with Anthropic's shape of a refusal where a status is one."""
    found = {status: reply if reply.content else replace(reply, content={JSON: replies.Failure})
             for status, reply in replied.items()}
    return {status: replace(reply, headers={**_REQUEST_ID, **reply.headers}) for status, reply in found.items()}


def _route(path: str, handler: Handler, summary: str, body: object, replied: Mapping[int, Reply]) -> Route:
    return Route("POST", path, handler, summary, _refusing(replied), body, is_costly=True, tag=ANTHROPIC)


MESSAGE_ROUTES = (
    _route("/v1/messages", messages.messages, "Answers a conversation, streamed if `stream` is true.", MessagesBody,
           {200: Reply("The message, or the events of a stream.",
                       {JSON: replies.AnswerMessage, EVENTS: replies.MessageEvent}), **_GENERATING}),
    _route("/v1/messages/count_tokens", messages.count_tokens, "Counts the tokens of a conversation's prompt.",
           CountBody, {200: Reply("The number of tokens.", {JSON: replies.TokenCount}), **_READING}),
)
_HEADER = "With the header `anthropic-version` as Anthropic does."
MODEL_ROUTES = (
    Route("GET", "/v1/models", models.for_anthropic(models.models, openai_models.models),
          "Lists the model and its adapters, as OpenAI lists models. " + _HEADER,
          {200: Reply("A list of the model and its adapters.", {JSON: openai.Models | replies.ModelPage}),
           400: Reply("A parameter of Anthropic's list breaks a rule.", {JSON: replies.Failure})},
          query={"limit": "The most models of a page of Anthropic's list, 20 without it.",
                 "after_id": "The id of the model behind which Anthropic's page begins.",
                 "before_id": "The id of the model before which it ends."}, tag="OpenAI"),
    Route("GET", "/v1/models/{model:.+}", models.for_anthropic(models.model, openai_models.model),
          "Describes the model, or one of its adapters. " + _HEADER,
          {200: Reply("The model or the adapter.", {JSON: openai.Model | replies.ModelInfo}),
           404: Reply("There is no model and no adapter of this name.", {JSON: openai.OpenAIError | replies.Failure})},
          tag="OpenAI"),
)
