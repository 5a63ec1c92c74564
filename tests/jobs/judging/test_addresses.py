import asyncio
import ipaddress

import pytest

from jobs.judging.client import check_endpoint
from jobs.machine.address_policy import AddressRefusedError, is_open
from jobs.specs.judging import parse_judge_spec
from jobs.specs.train import SpecError


def check(address, allows_internal=False):
    return asyncio.run(check_endpoint(address, allows_internal))


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "10.0.0.1",
        "192.168.1.10",
        "172.16.0.1",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "[::]",
        "[::ffff:169.254.169.254]",
        "2852039166",
        "0xa9fea9fe",
    ],
)
def test_internal_and_link_local_addresses_are_refused_unless_allowed(host):
    with pytest.raises(AddressRefusedError, match="allows_internal_addresses"):
        check(f"http://{host}:8000/v1")
    assert check(f"http://{host}:8000/v1", allows_internal=True).url.endswith(":8000/v1/chat/completions")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_this_machine_is_allowed(host):
    assert "chat/completions" in check(f"http://{host}:8000/v1").url


def test_numbers_of_the_open_network_are_open():
    assert is_open(ipaddress.ip_address("93.184.216.34"))
    assert is_open(ipaddress.ip_address("2606:2800:220:1::1"))
    assert is_open(ipaddress.ip_address("::ffff:127.0.0.1"))


def test_requests_go_to_the_number_that_was_checked_under_the_servers_name():
    endpoint = check("http://localhost:8123/v1/")
    assert endpoint.url in {"http://127.0.0.1:8123/v1/chat/completions", "http://[::1]:8123/v1/chat/completions"}
    assert (endpoint.host, endpoint.hostname) == ("localhost:8123", "localhost")


def test_an_unknown_name_is_an_error_of_one_sentence():
    with pytest.raises(AddressRefusedError, match="cannot be resolved"):
        check("http://no-such-host.invalid/v1")


@pytest.mark.parametrize(
    "address", ["ftp://a/v1", "file:///etc/passwd", "http://user:word@a/v1", "http://a/v1?key=3", "http:///v1", "a/v1"]
)
def test_an_address_with_secrets_or_of_another_kind_is_refused(address):
    with pytest.raises(SpecError, match="address"):
        parse_judge_spec({"judged": {"run_id": "a"}, "server": {"address": address}}, "test")
