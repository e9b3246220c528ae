"""Factors that move between a linear's inputs and the layer that makes them: the model stays what it is."""

from torch import Tensor

from penstock.quantization.block import BlockWeights, Reader


def divide_inputs(block: BlockWeights, reader: Reader, factors: Tensor) -> None:
    """Divides each of a reader's inputs by a factor [K], and multiplies its weights by it."""
    if reader.norm is not None:
        _divide(block, reader.norm, factors)
    elif reader.source is not None:
        _divide(block, reader.source, factors)
    else:
        raise ValueError(f"{reader.linears[0]}: nothing before it can take the factors")
    for linear in reader.linears:
        block.tensors[f"{linear}.weight"] = block.weight(linear) * factors


def _divide(block: BlockWeights, layer: str, factors: Tensor) -> None:
    for kind in ("weight", "bias"):
        name = f"{layer}.{kind}"
        if name in block.tensors:
            tensor = block.tensors[name]
            block.tensors[name] = tensor / (factors if tensor.dim() == 1 else factors[:, None])


def changed(block: BlockWeights, before: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the norms and biases that are no more what they were."""
    return {name: tensor for name, tensor in block.tensors.items() if tensor.dim() == 1 and tensor is not before[name]}
