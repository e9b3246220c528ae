import pytest

from penstock.system import addresses


@pytest.mark.parametrize(("address", "host", "port"), [
    ("10.0.0.5:4000", "10.0.0.5", 4000), ("[fd00::5]:1", "fd00::5", 1), ("gpu-7.example.org:65535", "gpu-7.example.org",
                                                                         65535), ("localhost:80", "localhost", 80)])
def test_an_address_has_a_host_and_a_port(address: str, host: str, port: int) -> None:
    assert addresses.split(address) == (host, port)
    assert addresses.joined(host, port) == address


@pytest.mark.parametrize("address", [
    "", "host", "host:", ":80", "host:0", "host:65536", "host:x", "fd00::5:80", "[host]:80", "[::zz]:80", "a b:80",
    "http://host:80", "-host:80", "host:80/"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|IPv6"):
        addresses.split(address)


@pytest.mark.parametrize(("host", "is_loopback", "asked"), [
    ("127.0.0.1", True, "127.0.0.1"), ("127.9.9.9", True, "127.9.9.9"), ("::1", True, "::1"),
    ("localhost", True, "localhost"), ("0.0.0.0", False, "127.0.0.1"), ("::", False, "::1"),
    ("10.0.0.1", False, "10.0.0.1"), ("localhost.example", False, "localhost.example")])
def test_what_others_can_reach(host: str, is_loopback: bool, asked: str) -> None:
    assert addresses.is_loopback(host) == is_loopback
    assert addresses.to_ask(host) == asked
