"""The routes of responses."""

from penstock.router.api.http.route import EVENTS, JSON, Reply, Route
from penstock.router.api.responses import replies, routes
from penstock.router.api.responses.bodies import AskingBody, ResponseBody
from penstock.router.api.usual_replies import OPENAI_GENERATING, OPENAI_READING, refusing

RESPONSE_ROUTES = (
    Route("POST", "/v1/responses", routes.create, "Makes a response, streamed if `stream` is true.",
          refusing({200: Reply("The response, or its events.",
                               {JSON: replies.Response, EVENTS: replies.ResponseEvent}), **OPENAI_GENERATING}),
          ResponseBody, is_costly=True, tag="OpenAI"),
    Route("POST", "/v1/responses/input_tokens", routes.count_tokens,
          "Counts the tokens of the prompt of a response, and makes none.",
          refusing({200: Reply("The number of tokens.", {JSON: replies.InputTokens}), **OPENAI_READING,
                    429: OPENAI_GENERATING[429]}), AskingBody, is_costly=True, tag="OpenAI"),
)
