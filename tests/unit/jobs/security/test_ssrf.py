"""Where a webhook may go."""

from ipaddress import ip_address

import pytest

from jobs.security.ssrf import AllowList, is_public, may_reach, url_problem
from jobs.settings import SettingsError, load
from tests.support.cases import each

NONE = AllowList.parse("")


def test_an_address_that_is_not_everybodys_is_not_public() -> None:
    addresses = [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1",
        "127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255",
        "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1",
        "fd00:ec2::254", "ff02::1", "100::1", "2001:db8::1", "3fff::1", "5f00::1",
        "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
        "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:0a00:0001::",
    ]  # fmt: skip
    for address, case in each(addresses):
        with case:
            assert not is_public(ip_address(address))
            assert not may_reach("example.com", address, NONE)


def test_an_address_of_the_internet_is_public() -> None:
    addresses = [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.1.1.1",
        "128.0.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.169.0.1", "223.255.255.255",
        "2606:4700::1111", "2a00::1", "2001:4860:4860::8888",
        "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
    ]  # fmt: skip
    for address, case in each(addresses):
        with case:
            assert is_public(ip_address(address))
            assert may_reach("example.com", address, NONE)


def test_the_allow_list_opens_what_it_names_and_names_entries_that_mean_nothing() -> None:
    allow = AllowList.parse("hooks.internal, 10.1.0.0/16,::1, 192.168.7.7")
    assert may_reach("HOOKS.internal.", "10.9.9.9", allow)
    assert may_reach("any", "10.1.2.3", allow)
    assert may_reach("any", "::ffff:10.1.2.3", allow)
    assert may_reach("any", "::1", allow)
    assert may_reach("any", "192.168.7.7", allow)
    for address in ("10.2.0.1", "127.0.0.1", "192.168.7.8"):
        assert not may_reach("any", address, allow)
    assert not may_reach("more.hooks.internal", "10.9.9.9", allow)
    for entry, case in each(["10.0.0.1/8", "10.0.0.0/40", "*.internal", "http://a", "a b"]):
        with case:
            with pytest.raises(SettingsError) as caught:
                load({"MILLRACE_WEBHOOK_ALLOW": f"fine.example, {entry}"})
            [problem] = caught.value.problems
            assert repr(entry) in problem


def test_a_url_that_no_webhook_can_go_to_is_refused() -> None:
    urls = [
        ("http://example.com/", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "malformed"),
        ("//example.com/", "scheme"),
        ("https://", "malformed"),
        ("https:///path", "malformed"),
        ("example.com", "malformed"),
        ("", "malformed"),
        ("https://user:word@example.com/", "credentials"),
        ("https://user@example.com/", "credentials"),
        ("https://@example.com/", "credentials"),
        ("https://example.com/#here", "fragment"),
        ("https://example.com:99999/", "malformed"),
        ("https://example.com:0/", "malformed"),
        ("https://example.com:x/", "malformed"),
        ("https://[::1/", "malformed"),
        ("https://example.com/a b", "malformed"),
        ("https://example.com/\r\nX: y", "malformed"),
        ("https://example.com\\@evil.example/", "malformed"),
        ("https://exämple.com/", "malformed"),
        ("https://example.com/\udc00", "malformed"),
        ("https://example.com/" + "x" * 2000, "malformed"),
        ("https://127.0.0.1/", "private_address"),
        ("https://[::1]:8443/", "private_address"),
        ("https://[::ffff:10.0.0.1]/", "private_address"),
        ("https://169.254.169.254/latest/meta-data", "private_address"),
    ]
    for (url, code), case in each(urls):
        with case:
            no = url_problem(url, NONE)
            assert no[0] == code


def test_a_url_of_the_internet_or_the_allow_list_is_taken_but_not_by_plain_http_to_any_name() -> (
    None
):
    urls = [
        "https://example.com", "https://example.com:8443/hook?job=1&a=%20", "https://a_b.example./",
        "HTTPS://EXAMPLE.com/", "https://xn--exmple-cua.com/", "https://8.8.8.8/",
        "https://[2606:4700::1111]/", "http://127.0.0.1:9/x", "http://hooks.internal/",
        "https://127.0.0.1/",
    ]  # fmt: skip
    for url, case in each(urls):
        with case:
            assert url_problem(url, AllowList.parse("127.0.0.1,hooks.internal")) is None
    no = url_problem("http://hooks.internal/", AllowList.parse("10.0.0.0/8"))
    assert no == ("scheme", "must be https, unless MILLRACE_WEBHOOK_ALLOW names hooks.internal")
