"""Which requests change something, for the audit log."""

from typing import Any

import structlog
from starlette.types import Scope

from api.audit_log import AUDIT
from api.http.api_keys import SIGN_IN
from api.http.browsers import SAFE_METHODS

CHANGES_NOTHING = ("/estimate", "/v1/estimates", "/v1/gaussians/{job_id}/score")
"""Routes that only compute from a body."""


def record_change(scope: Scope, facts: dict[str, Any]) -> None:
    """Writes who asked for a change and whether it was made.

    Requests that were refused before anybody was known are none, but signing in is.
    """
    route = getattr(scope.get("route"), "path", None)
    principal = scope.get("state", {}).get("principal")
    is_known = principal is not None or route == SIGN_IN
    if scope["method"] in SAFE_METHODS or route in CHANGES_NOTHING or not is_known:
        return
    name = getattr(principal, "name", "") or None
    structlog.get_logger(AUDIT).info("change", route=route, key_name=name, **facts)
