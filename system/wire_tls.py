"""Mutual TLS between routers, shards and the machines of a group: one CA signs all, and one name is on all
certificates, since addresses come and go."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "penstock-shard"
"""The name that certificates bear, unless another is chosen."""
NAME_ALONE = "`shard_tls_name` needs `shard_tls_ca`, `shard_tls_cert` and `shard_tls_key`, whose name it is"
ADVICE = "give --shard-tls-ca, --shard-tls-cert and --shard-tls-key"


@dataclass(frozen=True, slots=True)
class WireTls:
    """The PEM files of one end: the CA that the other end's certificate must be signed by, and its own certificate and
    key. `name` is what the certificate of the end that listens must bear as a DNS name; of the end that calls the CA's
    signature is enough."""

    ca: Path
    cert: Path
    key: Path
    name: str = NAME

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Returns the content of the files now, in that order: they may be renewed. Raises OSError."""
        return self.ca.read_bytes(), self.cert.read_bytes(), self.key.read_bytes()

    def context(self, is_server: bool) -> ssl.SSLContext:
        """Returns the settings of a connection, either end of which must show a certificate of the CA. Raises OSError,
        which ssl.SSLError is, or ValueError if the files can't be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self.ca)
        context.load_cert_chain(self.cert, self.key, password=_no_password)
        context.verify_mode = ssl.CERT_REQUIRED
        context.check_hostname = not is_server
        return context

    def check(self) -> None:
        """Raises ValueError, naming the file, if one can't be read, and naming all if they are no certificate and its
        key."""
        for path in (self.ca, self.cert, self.key):
            try:
                path.read_bytes()
            except OSError as error:
                raise ValueError(f"cannot read {path}: {error.strerror}") from error
        try:
            self.context(is_server=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.ca}, {self.cert} and {self.key} are no CA, certificate and its key: {error}"
                             ) from error

    @classmethod
    def of(cls, files: Sequence[Path | None], name: str) -> "WireTls | None":
        """Returns the TLS of three files, the CA, the certificate and the key, or None if none is given. Raises
        ValueError if some are missing."""
        ca, cert, key = files
        if ca is None and cert is None and key is None:
            return None
        if ca is None or cert is None or key is None:
            raise ValueError("the CA, the certificate and the key are needed together")
        return cls(ca, cert, key, name)


def _no_password() -> str:
    """Refuses a key that needs a password, for which OpenSSL would otherwise ask whoever sits at the terminal."""
    raise ValueError("the key is protected by a password, which there is no way to give")
