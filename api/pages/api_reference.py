"""A page that lists the addresses of the REST service, from its OpenAPI description.

The framework's own page loads scripts from another site, which the policy of the pages forbids.
"""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.http.api_keys import ReadKey
from api.pages.rendering import render

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def show(request: Request, _key: ReadKey) -> Response:
    """Every address with its methods and parameters."""
    schema: dict[str, Any] = request.app.openapi()
    operations = [
        (method.upper(), path, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    return render(request, "api_reference", {"info": schema["info"], "operations": operations})
