"""Between KServe's messages and what the router knows: a request becomes tensors, tensors become messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.protos import kserve_pb2 as pb
from penstock.router.api.kserve.inference import Inference, Inferred
from penstock.router.api.kserve.messages import refuse_elsewhere
from penstock.router.api.kserve.models import Named
from penstock.router.api.kserve.tensors import BYTES, Tensor, checked, from_bytes, listed, refused, to_bytes
from penstock.router.errors import ValidationError

FINAL, EMPTY_FINAL = "triton_final_response", "triton_enable_empty_final_response"
_FIELDS = {
    "BOOL": "bool_contents", **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"), "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"), "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", BYTES: "bytes_contents"}
"""The fields of contents by the datatypes of their values."""


def decode_inference(message: pb.ModelInferRequest, model: Named) -> Inference:
    """Returns a message as a request. Raises ValidationError."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise ValidationError(f"`raw_input_contents` must have the data of {len(message.inputs)} inputs. "
                              f"Given: {len(raw)}")
    inputs: dict[str, Tensor] = {}
    for number, each in enumerate(message.inputs):
        if each.name in inputs:
            raise ValidationError(f"`inputs` must have each name once. Given: `{each.name:.100}` twice")
        refuse_elsewhere(each.name, _parameters(each.parameters))
        inputs[each.name] = _from_raw(each, raw[number]) if raw else _from_contents(each)
    for output in message.outputs:
        refuse_elsewhere(output.name, _parameters(output.parameters))
    parameters = {name: value for name, value in _parameters(message.parameters).items() if name != EMPTY_FINAL}
    return Inference(model, message.id, parameters, inputs, [output.name for output in message.outputs])


def _parameters(parameters: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    chosen = ((name, value, value.WhichOneof("parameter_choice")) for name, value in parameters.items())
    return {name: getattr(value, choice) for name, value, choice in chosen if choice}


def _from_raw(each: pb.ModelInferRequest.InferInputTensor, data: bytes) -> Tensor:
    if each.HasField("contents"):
        raise refused(each.name, each.datatype, each.shape, "must not have `contents` beside `raw_input_contents`")
    return from_bytes(each.name, each.datatype, each.shape, data)


def _from_contents(each: pb.ModelInferRequest.InferInputTensor) -> Tensor:
    field = _FIELDS.get(each.datatype)
    values: Sequence[Any] = [*getattr(each.contents, field)] if field else []
    if each.datatype == BYTES:
        values = [_text(each, number, value) for number, value in enumerate(values)]
    return checked(each.name, each.datatype, each.shape, values)


def _text(each: pb.ModelInferRequest.InferInputTensor, number: int, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise refused(each.name, BYTES, each.shape, f"must have texts in UTF-8, which value {number} is not") from error


def encode_response(
    inference: Inference, inferred: Inferred, is_raw: bool, is_final: bool | None = None
) -> pb.ModelInferResponse:
    """Returns the message of an answer, or of a part of one, which says whether it `is_final`."""
    response = pb.ModelInferResponse(
        model_name=inference.model.name, model_version=inference.model.version, id=inference.id)
    if is_final is not None:
        response.parameters[FINAL].bool_param = is_final
    for tensor in inferred.tensors:
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if is_raw:
            response.raw_output_contents.append(to_bytes(tensor))
        else:
            values = [text.encode() for text in tensor.values] if tensor.datatype == BYTES else listed(tensor)
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(values)
    return response
