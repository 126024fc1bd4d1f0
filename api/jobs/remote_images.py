"""Images at https URLs in tables, fetched without access to internal networks.

The host is resolved once and the connection made to the address that was checked, so that a name
which resolves differently later gains nothing (DNS rebinding). Redirects are not followed.
"""

import contextlib
import http.client
import io
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import SplitResult, urlsplit

from api.settings import Settings
from difficulty_service.base.errors import ImageError

PORT = 443
TIMEOUT = 30.0  # seconds for the whole download
CHUNK = 1 << 16
MAX_URL_LENGTH = 8192
MAX_ADDRESSES = 4
NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class FetchLimits:
    """Limits for fetching one image."""

    max_bytes: int  # of the image
    timeout: float = TIMEOUT  # seconds from the first byte sent to the last one received
    port: int = PORT  # the only one to connect to
    authorities: str | None = None  # file with certificates to trust instead of the system's
    is_allowed: "Callable[[Address], bool] | None" = None  # None for `is_public`


def fetch_limits(settings: Settings) -> FetchLimits:
    """The limits that the operator has set."""
    return FetchLimits(settings.max_image_bytes)


def fetch_image(url: str, limits: FetchLimits) -> BinaryIO:
    """The image at an https URL, in memory.

    Raises an `ImageError` where it does not exist, is too large or too slow, or not public.
    """
    parts = _split(url, limits)
    addresses = _public_addresses(str(parts.hostname), limits)
    try:
        with _connected(parts, addresses, limits) as connection:
            return io.BytesIO(_read(connection, parts, limits))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ImageError(f"{parts.hostname} could not deliver it: {error}") from error


def _split(url: str, limits: FetchLimits) -> SplitResult:
    if len(url) > MAX_URL_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise ImageError("the URL is too long or not percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port or limits.port
    except ValueError as error:
        raise ImageError(f"the URL is invalid: {error}") from error
    if parts.scheme != "https" or not parts.hostname:
        raise ImageError("only https URLs are read")
    if port != limits.port or "@" in parts.netloc:
        raise ImageError("the URL has a port or a password")
    return parts


def _public_addresses(host: str, limits: FetchLimits) -> list[str]:
    """Addresses of a host, all of which must be public."""
    try:
        infos = socket.getaddrinfo(host, limits.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ImageError(f"there is no host {host!r}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in infos))[:MAX_ADDRESSES]
    allowed = limits.is_allowed or is_public
    # A zone, as in fe80::1%eth0, names an interface of this computer.
    if not addresses or not all(
        "%" not in each and allowed(ipaddress.ip_address(each)) for each in addresses
    ):
        raise ImageError(f"{host!r} is not a public address")
    return addresses


def is_public(address: Address) -> bool:
    """Whether an address is on the public internet, also where it embeds another address."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(inside)
    unusual = address.is_multicast or address.is_reserved or address.is_unspecified
    return address.is_global and not unusual


@contextlib.contextmanager
def _connected(
    parts: SplitResult, addresses: list[str], limits: FetchLimits
) -> Iterator[http.client.HTTPSConnection]:
    """A connection to one of the checked addresses, with a certificate of the host."""
    host = str(parts.hostname)
    context = ssl.create_default_context(cafile=limits.authorities)
    connection = http.client.HTTPSConnection(host, limits.port, context=context)
    with _connect(addresses, limits) as plain, plain.dup() as handle:
        # A server may send single bytes for ever, which the timeout of a read does not notice.
        late = threading.Event()

        def hang_up() -> None:
            late.set()
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(limits.timeout, hang_up)
        timer.daemon = True
        timer.start()
        try:
            connection.sock = context.wrap_socket(plain, server_hostname=host)
            yield connection
            if late.is_set():  # a download that was cut off may look complete
                raise ImageError(f"{host} takes longer than {limits.timeout:g} s")
        finally:
            timer.cancel()
            timer.join()
            connection.close()


def _connect(addresses: list[str], limits: FetchLimits) -> socket.socket:
    """A connection to the first address that accepts one."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, limits.port), limits.timeout)
    return socket.create_connection((addresses[-1], limits.port), limits.timeout)


def _read(
    connection: http.client.HTTPSConnection, parts: SplitResult, limits: FetchLimits
) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", target, headers={"Accept": "image/*", "Connection": "close"})
    with connection.getresponse() as response:
        if response.status != http.client.OK:
            raise ImageError(f"{parts.hostname} answers {response.status}; redirects are refused")
        declared = response.length
        data = bytearray()
        while chunk := response.read1(CHUNK):
            data += chunk
            if len(data) > limits.max_bytes or (declared or 0) > limits.max_bytes:
                raise ImageError(f"more than {limits.max_bytes:,} bytes")
    if declared is not None and len(data) < declared:
        raise ImageError("the connection ended early, or took too long")
    return bytes(data)
