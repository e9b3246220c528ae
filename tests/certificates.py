"""Certificates of a CA, as docs/groups.md has them made: by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.system.wire_tls import WireTls

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA in a folder of its own."""

    folder: Path

    def issue(self, who: str, name: str = "penstock-shard") -> WireTls:
        """Makes a certificate that bears a DNS name."""
        key, request, cert = (self.folder / f"{who}.{kind}" for kind in ("key", "csr", "pem"))
        _openssl("req", "-new", *CURVE, "-subj", f"/CN={who}", "-addext", f"subjectAltName=DNS:{name}",
                 "-keyout", str(key), "-out", str(request))
        _openssl("x509", "-req", "-in", str(request), "-CA", str(self.folder / "ca.pem"), "-CAkey",
                 str(self.folder / "ca.key"), "-CAcreateserial", "-days", "30", "-copy_extensions", "copy",
                 "-out", str(cert))
        return WireTls(self.folder / "ca.pem", cert, key)


def authority(folder: Path) -> Authority:
    """Makes a CA."""
    folder.mkdir()
    _openssl("req", "-x509", *CURVE, "-days", "30", "-subj", "/CN=Penstock CA", "-keyout", str(folder / "ca.key"),
             "-out", str(folder / "ca.pem"))
    return Authority(folder)


def flags(tls: WireTls) -> list[str]:
    """Returns the options that name the files."""
    return ["--shard-tls-ca", str(tls.ca), "--shard-tls-cert", str(tls.cert), "--shard-tls-key", str(tls.key)]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
