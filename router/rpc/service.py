"""The calls of `protos/penstock.proto`: each is answered by what answers its HTTP route."""

from contextlib import aclosing

from penstock.protos import penstock_pb2 as pb
from penstock.protos import services
from penstock.router.api.http.sse import EventPlaces
from penstock.router.api.tgi.bodies import GenerateBody
from penstock.router.api.tgi.generate import asks_full_text, identified, returned
from penstock.router.api.tgi.info import describe
from penstock.router.errors import ValidationError
from penstock.router.generation.answers import answering, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.service import Service
from penstock.router.generation.services import Services
from penstock.router.generation.text_tokens import split
from penstock.router.rpc import wire
from penstock.router.rpc.calls import Calls, Context, chosen, write

MAX_SPLIT = 1 << 18
"""The most characters of a text whose tokens make one message."""
SERVICE_NAME: str = services.service_of(pb).full_name


class TextGeneration:
    """Answers calls, each in a task of its own, which gRPC cancels when the client leaves or the deadline passes."""

    def __init__(self, models: Services, calls: Calls) -> None:
        self._models = models
        self._calls = calls

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        method = f"{SERVICE_NAME}/Generate"
        async with (self._calls.costly(context, method, gives_receipts=True) as form,
                    chosen(self._models, context) as service):
            form.path, form.content = "/generate", wire.decode_request(request)
            return await self._generate(service, request, wire.to_body(form.content))

    async def _generate(self, service: Service, request: pb.GenerateRequest, body: GenerateBody) -> pb.GenerateResponse:
        tokenizer = service.tokenizer
        is_full_text = asks_full_text(body, default=False)
        with Asking(service) as asking:
            spec, identity = await identified(service, body, is_full_text, wire.decode_wish(request), is_stream=False)
            async with answering(asking, [spec], identity, is_stream=False) as answers:
                tokens = await tokens_of(answers)
        prompt = body.inputs * is_full_text
        has_details = body.parameters.details or body.parameters.decoder_input_details
        prefill = wire.encode_prefill(tokenizer, answers.each[0]) if has_details else []
        messages = []
        for answer in returned(answers.each, tokens, body.parameters):
            details = wire.encode_details(answer) if has_details else None
            if details is not None:
                details.prefill.extend(prefill)
            messages.append(wire.encode_answer(tokenizer, answer, tokens[answer.index], prompt, details))
        best, *others = messages
        if has_details:
            best.details.best_of_sequences.extend(others)
        elif (body.parameters.n or 1) > 1:
            best.best_of_sequences.extend(others)
        best.answer = identity.text
        return best

    async def GenerateStream(self, request: pb.GenerateRequest, context: Context) -> None:
        """Streams an answer. It writes instead of yielding, so that what ends the call ends `answering` at once."""
        method = f"{SERVICE_NAME}/GenerateStream"
        async with (self._calls.costly(context, method, gives_receipts=True) as form,
                    chosen(self._models, context) as service):
            form.path, form.content = "/generate_stream", wire.decode_request(request)
            body, tokenizer = wire.to_body(form.content), service.tokenizer
            is_full_text, has_details = asks_full_text(body, default=False), body.parameters.details
            with Asking(service) as asking:
                spec, identity = await identified(
                    service, body, is_full_text, wire.decode_wish(request), is_stream=True)
                prompt, places = body.inputs * is_full_text, EventPlaces(identity)
                async with answering(asking, [spec], identity, is_stream=True) as answers:
                    index = 0
                    async for answer, event in answers:
                        index += 1
                        if (id := places.take(answer.index)) is not None:
                            message = wire.encode_event(tokenizer, index, answer, event, prompt, has_details)
                            message.id = id.decode()
                            await write(context, message)
                    places.check()

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        async with self._calls.costly(context, f"{SERVICE_NAME}/Tokenize"), chosen(self._models, context) as service:
            if len(request.inputs) > MAX_SPLIT:
                raise ValidationError(f"`inputs` must have <= {MAX_SPLIT} characters, for the answer is one message; "
                                      f"HTTP's /tokenize takes longer texts. Given: {len(request.inputs)}")
            response = pb.TokenizeResponse()
            async with service.engine.permit(), aclosing(split(service, request.inputs)) as parts:
                async for part in parts:
                    wire.add_tokens(response, part)
            return response

    async def Info(self, request: pb.InfoRequest, context: Context) -> pb.InfoResponse:
        async with self._calls.free(context), chosen(self._models, context) as service:
            return wire.encode_info(describe(service))
