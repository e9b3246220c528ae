"""The routes of responses."""

from penstock.router.api.http.route import EVENTS, JSON, Reply
from penstock.router.api.responses import replies, routes, stored
from penstock.router.api.responses.bodies import AskingBody, ResponseBody
from penstock.router.api.store_routes import CHANGING, LISTING, openai_route
from penstock.router.api.usual_replies import OPENAI_GENERATING, OPENAI_READING

_NONE = {404: Reply("There is no such response.")}
_GOES_ON = {
    403: Reply("A page of another site goes on from a response, and the server has no keys and no list of sites."),
    404: Reply("The adapter of this name was unloaded, or there is no response `previous_response_id`."),
    507: CHANGING[507]}
_RESPONSE = Reply("The response, or its events.", {JSON: replies.Response, EVENTS: replies.ResponseEvent})
RESPONSE_ROUTES = (
    openai_route("POST", "/v1/responses", routes.create, "Makes a response, streamed if `stream` is true.",
                 _RESPONSE, {**OPENAI_GENERATING, **_GOES_ON}, body=ResponseBody),
    openai_route("POST", "/v1/responses/input_tokens", routes.count_tokens,
                 "Counts the tokens of the prompt of a response, and makes none.",
                 Reply("The number of tokens.", {JSON: replies.InputTokens}),
                 {**OPENAI_READING, **_GOES_ON, 429: OPENAI_GENERATING[429]}, body=AskingBody),
    openai_route("GET", "/v1/responses/{response}", stored.retrieve,
                 "Gives a response, or the events of one that is made in the background.",
                 _RESPONSE, {**LISTING, **_NONE}, query=stored.QUERY),
    openai_route("DELETE", "/v1/responses/{response}", stored.delete, "Deletes a response.",
                 Reply("The response is deleted.", {JSON: replies.DeletedResponse}), {**CHANGING, **_NONE}),
    openai_route("POST", "/v1/responses/{response}/cancel", stored.cancel,
                 "Cancels a response of the background.", Reply("The response.", {JSON: replies.Response}),
                 {**CHANGING, **_NONE, 409: Reply("The response was not asked for in the background.")}),
    openai_route("GET", "/v1/responses/{response}/input_items", stored.input_items,
                 "Lists the items of which a response was made.",
                 Reply("A page of the list.", {JSON: replies.InputItemPage}),
                 {**LISTING, **_NONE, 409: Reply("The conversation is too long to be told.")},
                 query=stored.ITEMS_QUERY),
)
