"""The certificates of the shard wire, made as the documentation says."""

import re
import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.system.wire_tls import WireTls
from tests.certificates import authority
from tests.paths import ROOT


def test_the_documentations_commands_make_certificates(tmp_path: Path) -> None:
    [commands] = re.findall(r"```bash\n(openssl.*?)```", (ROOT / "docs/groups.md").read_text(), re.DOTALL)
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, capture_output=True)
    tls = WireTls(tmp_path / "ca.pem", tmp_path / "shard.pem", tmp_path / "shard.key")
    tls.check()
    assert shake_hands(tls, tls) == ""


def test_who_is_let_in(tmp_path: Path) -> None:
    ours, others = authority(tmp_path / "ours"), authority(tmp_path / "others")
    one, other, stranger = ours.issue("one"), ours.issue("other"), others.issue("stranger")
    assert shake_hands(one, other) == ""
    assert "unknown ca" in shake_hands(WireTls(one.ca, stranger.cert, stranger.key), other).lower().replace("_", " ")
    assert "certificate verify failed" in shake_hands(WireTls(stranger.ca, one.cert, one.key), other)
    assert "Hostname mismatch" in shake_hands(one, ours.issue("named", name="another"))


@pytest.mark.parametrize(("files", "complaint"), [
    ((None, Path("/c"), Path("/k")), "needed together"), ((Path("/a"), Path("/c"), None), "needed together")])
def test_some_files_are_not_enough(files: tuple[Path | None, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        WireTls.of(files, "name")
    assert WireTls.of((None, None, None), "name") is None


def shake_hands(client: WireTls, server: WireTls) -> str:
    """Connects two ends in memory; returns the client's complaint, or the server's, or nothing."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.context(is_server=False).wrap_bio(to_client, to_server, server_hostname=client.name),
            server.context(is_server=True).wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                if "alert" in str(error).lower() or end is ends[0]:
                    return str(error)
    try:
        ends[0].read(1)
    except ssl.SSLWantReadError:
        return ""
    except ssl.SSLError as error:
        return str(error)
    return "it ended"
