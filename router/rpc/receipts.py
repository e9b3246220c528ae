"""Receipts of calls that generate text, which are trailing metadata."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from penstock.router.api.http.receipts import HEADER, give_receipt, wish_of_header
from penstock.router.errors import ValidationError
from penstock.router.generation.signer import Signer

TRAILER = "penstock-receipt-bin"
MAX_BYTES = 4800
"""The most bytes of a receipt: in base64 they are a third more, and clients take 8 KB of metadata."""


@dataclass(slots=True)
class HttpForm:
    """The request of a call as a client of HTTP would have sent it, by which `penstock replay` asks again; its method
    fills it in."""

    path: str = ""
    content: dict[str, Any] = field(default_factory=dict)

    async def receipt(self, signer: Signer | None) -> bytes:
        """Returns the receipt of the call, whose answers have ended. Raises ValidationError."""
        body = orjson.dumps(self.content, option=orjson.OPT_NON_STR_KEYS).decode()
        receipt = orjson.dumps(await give_receipt(self.path, body, signer, MAX_BYTES))
        if len(receipt) > MAX_BYTES:
            raise ValidationError(f"`{HEADER}` by gRPC is for fewer answers: their receipt has {len(receipt)} bytes, "
                                  f"and metadata takes {MAX_BYTES}; HTTP has no such limit")
        return receipt


def wants_receipt(named: str | None, gives_receipts: bool) -> bool:
    """Tells whether the metadata asks for a receipt, `named` by its value. Raises ValidationError, also if the call has
    none to give."""
    if named is not None and not gives_receipts:
        raise ValidationError(f"`{HEADER}` is for the calls Generate and GenerateStream of penstock.v1.TextGeneration")
    return wish_of_header(named) is True
