"""SSRF protection: webhooks go to public addresses and to those of MILLRACE_WEBHOOK_ALLOW; inputs
are fetched from public addresses and from those of MILLRACE_FETCH_ALLOW.

The form of a tenant's webhook is checked when a job is submitted; the addresses behind a name are
checked whenever it is connected to (`workers/http_client/pinned.py`).
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address

MAX_URL = 2000
_NAME = re.compile(r"(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)
_ODD = re.compile(r"[^!-~]|[\\\"<>^`{|}]")

_SPECIAL_V4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; one cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's own services, to its machines
        "169.254.0.0/16",  # link-local; 169.254.169.254 is most clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; one cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
# All of IPv6 that is public lies in here: loopback, link-local, unique local (fd00:ec2::254 is
# metadata), site-local, multicast and local NAT64 don't.
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = [
    IPv6Network("2001::/23"),  # protocol assignments, Teredo
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("3fff::/20"),  # documentation
]
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Returns True for an address of the public internet.

    An IPv6 address that embeds an IPv4 one (mapped, 6to4, NAT64) is as public as that one.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


@dataclass(frozen=True, slots=True)
class AllowList:
    """Private hosts and networks that may be reached, by plain http too."""

    hosts: frozenset[str]
    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def parse(cls, text: str) -> "AllowList":
        """Reads host names, addresses and networks between commas. Raises ValueError."""
        hosts, networks = set(), []
        for entry in filter(None, (part.strip() for part in text.split(","))):
            try:
                networks.append(ip_network(entry))
            except ValueError as error:
                if "/" in entry or not _NAME.fullmatch(entry):
                    raise ValueError(
                        f"{entry!r} is no host name, address or network ({error})"
                    ) from None
                hosts.add(_plain(entry))
        return cls(frozenset(hosts), tuple(networks))

    def has_host(self, host: str) -> bool:
        """Returns True if the list has this host name or literal address."""
        address = _literal(host)
        return _plain(host) in self.hosts or (address is not None and self.has_address(address))

    def has_address(self, address: Address) -> bool:
        """Returns True if a network of the list has this address, or the one it embeds."""
        inner = _embedded(address) if isinstance(address, IPv6Address) else None
        return any(found in network for found in (address, inner) if found
                   for network in self.networks)  # fmt: skip


def may_reach(host: str, address: str, allow: AllowList) -> bool:
    """Returns True if a request to this host may connect to this address of its name."""
    found = ip_address(address)
    return is_public(found) or allow.has_host(host) or allow.has_address(found)


def url_problem(
    url: str, allow: AllowList, setting: str = "MILLRACE_WEBHOOK_ALLOW"
) -> tuple[str, str] | None:
    """Returns (code, message) where no request may go to a URL. setting: that of the list."""
    if len(url) > MAX_URL or _ODD.search(url):
        return "malformed", (
            f"must be at most {MAX_URL} printable ASCII characters: percent-encode the path, and "
            "write the host as xn--…"
        )
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError as error:
        return "malformed", f"is no URL: {error}"
    if port == 0 or not (_NAME.fullmatch(host) or _literal(host)):
        return "malformed", "must name a host, as in https://example.com/hook"
    return _refuse_parts(parts, host, allow, setting)


def _refuse_parts(
    parts: SplitResult, host: str, allow: AllowList, setting: str
) -> tuple[str, str] | None:
    allowed = allow.has_host(host)
    address = _literal(host)
    if parts.scheme not in ("https", "http"):
        return "scheme", "must begin with https://"
    if parts.scheme == "http" and not allowed:
        return "scheme", f"must be https, unless {setting} names {host}"
    if "@" in parts.netloc:
        return "credentials", "must not hold a user or password"
    if parts.fragment:
        return "fragment", "must not have a fragment (#…): it would not be sent"
    if address and not (allowed or is_public(address)):
        return "private_address", f"{host} is not public, and {setting} has it not"
    return None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
