"""Rules for browsers: a sign-in's cookie, requests of other sites, and what is loaded and kept."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problems import forbidden

COOKIE = "difficulty_key"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name over https: browsers accept it from this host alone, not from a sibling subdomain."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITE = ("same-origin", "none")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy of every answer: nothing from other sites, nothing inline."""

HEADERS = {
    # Of answers that do not say for themselves how they may be kept: most hold what a key may see.
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class BrowserHeaders:
    """Middleware that tells browsers what an answer may load, and who may embed or keep it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and adds the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def secret_in_cookie(headers: Headers, *, secure: bool) -> str | None:
    """The key of a signed-in browser; over https only a cookie that this host has set counts."""
    return cookie_parser(headers.get("cookie", "")).get(_name(secure=secure)) or None


def set_cookie(response: Response, secret: str, *, secure: bool) -> None:
    """Signs a browser in: until it is closed it sends the key, which no script can read."""
    name = _name(secure=secure)
    response.set_cookie(name, secret, httponly=True, samesite="strict", secure=secure)


def delete_cookie(response: Response, *, secure: bool) -> None:
    """Signs a browser out that was signed in over https or not."""
    response.delete_cookie(_name(secure=secure), httponly=True, samesite="strict", secure=secure)


def _name(*, secure: bool) -> str:
    return SECURE_COOKIE if secure else COOKIE


def refuse_other_sites(method: str, headers: Headers) -> None:
    """Refuses changes that a page of another site has its visitor's browser request.

    A browser adds its cookies to such a request, and needs none where there are no keys. A key in
    a header proves that the request is no page's: a page cannot send one without being asked for
    permission first, which is never given.
    """
    if method in SAFE_METHODS or "authorization" in headers or "x-api-key" in headers:
        return
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site is not None:
        allowed = site in OWN_SITE
    else:
        # Browsers send the first header only over https and to this machine; others send neither.
        allowed = origin is None or urlsplit(origin).netloc == headers.get("host")
    if not allowed:
        raise forbidden(
            "the request comes from a page of another site",
            "open the pages of this service itself, or send a key in a header",
        )
