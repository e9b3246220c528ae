"""The bodies of HTTP: JSON, and behind it the data of tensors, as Triton's extension for binary data has it."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import hdrs, web

from penstock.router.api.http.access import ACCESS
from penstock.router.api.http.body import check_encoding, parse_json, read_bytes, to_body
from penstock.router.api.kserve.bodies import InferBody, InputBody
from penstock.router.api.kserve.inference import TEXT, Inference, Inferred, of_text
from penstock.router.api.kserve.models import Named, model_of
from penstock.router.api.kserve.tensors import BYTES, Tensor, checked, flattened, from_bytes, listed, refused, to_bytes
from penstock.router.errors import ValidationError, WrongContentType
from penstock.router.routing import header_text

LENGTH = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON."""
SIZE, BINARY, ALL_BINARY = "binary_data_size", "binary_data", "binary_data_output"
_FREE = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded")
"""The types of bodies, beside none, that browsers send for a page without asking the server first."""
_OURS = (ALL_BINARY,)
_ELSEWHERE = ("shared_memory_region", "classification")
"""Parameters of tensors by which Triton takes and gives them otherwise."""


async def read_any(request: web.Request) -> bytearray:
    """Returns the bytes of a body of any type, as Triton takes it, but for those that pages of other sites may send
    without asking. Raises Unreadable."""
    is_free = hdrs.CONTENT_TYPE not in request.headers or request.content_type in _FREE
    if is_free and request.app[ACCESS].is_foreign_page(request):
        raise WrongContentType
    check_encoding(request)
    return await read_bytes(request)


async def read_inference(request: web.Request) -> tuple[Inference, InferBody]:
    """Returns a request, and the body in which it came. Raises RouterError."""
    content = await read_any(request)
    model = await model_of(request)
    length = _length(request, len(content))
    if not length:
        return _raw(model, bytes(content))
    body = to_body(parse_json(content[:length], model.service.limits), InferBody)
    data, place, inputs = memoryview(content), length, {}
    for each in body.inputs:
        size = _size(each, len(content) - place)
        if each.name in inputs:
            raise ValidationError(f"`inputs` must have each name once. Given: `{each.name:.100}` twice")
        inputs[each.name] = _tensor(each, None if size is None else data[place:place + size])
        place += size or 0
    if place != len(content):
        raise ValidationError(f"`{SIZE}` of all inputs must be the {len(content) - length} bytes behind the JSON. "
                              f"Given: {place - length}")
    parameters = {name: value for name, value in (body.parameters or {}).items() if name not in _OURS}
    outputs = [each.name for each in body.outputs or ()]
    for output in body.outputs or ():
        refuse_elsewhere(output.name, output.parameters)
    return Inference(model, body.id or "", parameters, inputs, outputs), body


def _raw(model: Named, data: bytes) -> tuple[Inference, InferBody]:
    """Returns a request that is the binary form of a text alone, which is answered in binary."""
    [text] = from_bytes(TEXT, BYTES, [1], data).values
    return of_text(model, text), InferBody(parameters={ALL_BINARY: True}, inputs=[])


def _length(request: web.Request, length: int) -> int:
    """Returns the number of bytes of a body of this length that are JSON."""
    if LENGTH not in request.headers:
        return length
    given = header_text(request, LENGTH)
    if not given.isdecimal() or len(given) > 18 or int(given) > length:
        raise ValidationError(f"`{LENGTH}` must be >= 0 and <= {length}, the bytes of the body. Given: {given:.20}")
    return int(given)


def _size(each: InputBody, left: int) -> int | None:
    """Returns the number of bytes of a tensor's data behind the JSON; None if they are in it."""
    size = (each.parameters or {}).get(SIZE)
    if size is None:
        return None
    if type(size) is not int or not 0 <= size <= left:
        raise refused(each.name, each.datatype, each.shape, f"must have a `{SIZE}` >= 0 and <= {left}, the bytes that "
                      f"follow. Given: {size!s:.20}")
    return size


def _tensor(each: InputBody, data: memoryview | None) -> Tensor:
    refuse_elsewhere(each.name, each.parameters)
    if data is not None:
        return from_bytes(each.name, each.datatype, each.shape, data)
    if each.data is None:
        raise refused(each.name, each.datatype, each.shape, f"must have `data`, or `{SIZE}` among its `parameters`")
    return checked(each.name, each.datatype, each.shape, flattened(each.data))


def refuse_elsewhere(name: str, parameters: Mapping[str, Any] | None) -> None:
    """Raises ValidationError for a tensor that is to be taken from, or given to, another place than the message."""
    for parameter in _ELSEWHERE:
        if (parameters or {}).get(parameter):
            raise ValidationError(f"`{parameter}` of the tensor `{name:.100}` is not supported",
                                  "unsupported_parameter")


def infer_response(inference: Inference, inferred: Inferred, body: InferBody) -> web.Response:
    """Returns the answer, in which those tensors are binary that were asked for so."""
    asked = {each.name: (each.parameters or {}).get(BINARY) for each in body.outputs or ()}
    usual = (body.parameters or {}).get(ALL_BINARY) is True
    outputs, parts = [], []
    for tensor in inferred.tensors:
        output: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        wish = asked.get(tensor.name)
        if usual if wish is None else wish is True:
            parts.append(to_bytes(tensor))
            output["parameters"] = {SIZE: len(parts[-1])}
        else:
            output["data"] = listed(tensor)
        outputs.append(output)
    content = orjson.dumps({**head(inference), "outputs": outputs})
    if not parts:
        return web.Response(body=content, headers=inferred.headers, content_type="application/json")
    headers = {**inferred.headers, LENGTH: str(len(content))}
    return web.Response(body=b"".join([content, *parts]), headers=headers, content_type="application/octet-stream")


def head(inference: Inference) -> dict[str, Any]:
    """Returns the fields with which all answers begin."""
    own = {"id": inference.id} if inference.id else {}
    return {**own, "model_name": inference.model.name, "model_version": inference.model.version}


def fields(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Returns tensors as the fields of an object: a value, or a list of values where there are more dimensions or
    several."""
    return {tensor.name: tensor.values[0] if tensor.shape == (1,) else listed(tensor) for tensor in tensors}
