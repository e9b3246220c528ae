"""The TLS settings of the server, made of its certificate files."""

import ssl

from penstock.system.arguments import InvalidArgument
from penstock.system.settings import ServerSettings


def server_context(config: ServerSettings) -> ssl.SSLContext | None:
    """Returns the server's TLS settings, or None without certificate files.

    Raises InvalidArgument if the files can't be used.
    """
    if config.ssl_certfile is None or config.ssl_keyfile is None:
        return None
    for name, path in (("ssl_certfile", config.ssl_certfile), ("ssl_keyfile", config.ssl_keyfile)):
        try:
            path.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"`{name}`: cannot read {path}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgument(f"`ssl_certfile` and `ssl_keyfile`: {config.ssl_certfile} and {config.ssl_keyfile} are "
                              f"no certificate and its key: {error}") from error
    return context


def _no_password() -> str:
    """Refuses a key that needs a password, for which OpenSSL would otherwise ask whoever sits at the terminal."""
    raise ValueError("the key is protected by a password, which there is no way to give")
