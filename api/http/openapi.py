"""The OpenAPI description, completed by the problems that each address may answer with."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from api.http.api_keys import OPEN_PATHS
from api.http.problems import CONTENT_TYPE

REFERENCE = "#/components/schemas/Problem"
MEANINGS = {
    "400": "The request cannot be understood",
    "401": "A valid API key is needed",
    "403": "The key does not allow this",
    "404": "There is no such thing, or it belongs to another key",
    "409": "It does not fit the present state",
    "413": "The body is larger than allowed",
    "415": "The body is of another kind than expected",
    "422": "A field of the request is wrong",
    "429": "Too many requests; the Retry-After header says when to try again",
    "500": "Something went wrong inside",
    "503": "The service cannot do this now",
}
"""Description of a status where the route gives none."""

AUTHENTICATED = ("401", "403", "429", "500", "503")  # wherever a key may be needed
WITH_BODY = ("400", "413", "415", "422")
WITH_PARAMETERS = ("404", "422")
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # the framework's own errors


class ProblemSchema(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(
        title="Problem",
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/invalid-request",
                    "title": "A field of the request is wrong",
                    "status": 422,
                    "detail": "limit: Input should be greater than or equal to 1",
                    "remedy": "correct the fields named; /openapi.json has their schema",
                    "field": "limit",
                }
            ]
        },
    )

    type: str = Field(description="Stable name of the kind of problem")
    title: str
    status: int
    detail: str = Field(description="What is wrong, with the value")
    remedy: str = Field(description="What to do about it")
    field: str | None = Field(default=None, description="Field of the request that is at fault")


def with_problems(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that declares the problems of every address."""
    original = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(original())
        return app.openapi_schema

    return describe


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = ProblemSchema.model_json_schema()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            for status in _statuses(path, operation):
                operation["responses"].setdefault(status, {})
            for status, response in operation["responses"].items():
                _complete_response(status, response)
    for name in UNUSED_SCHEMAS:
        schemas.pop(name, None)
    return schema


def _statuses(path: str, operation: dict[str, Any]) -> list[str]:
    return [
        *(() if path in OPEN_PATHS else AUTHENTICATED),
        *(WITH_BODY if "requestBody" in operation else ()),
        *(WITH_PARAMETERS if operation.get("parameters") else ()),
    ]


def _complete_response(status: str, response: dict[str, Any]) -> None:
    """Gives an error a description and the schema of a problem, unless it has its own."""
    if not status.startswith(("4", "5")):
        return
    if response.get("description") in (None, "", "Validation Error"):
        response["description"] = MEANINGS.get(status, "A problem")
    if not _has_schema(response):
        response["content"] = {CONTENT_TYPE: {"schema": {"$ref": REFERENCE}}}


def _has_schema(response: dict[str, Any]) -> bool:
    schemas = [body["schema"] for body in response.get("content", {}).values() if "schema" in body]
    return any(schemas) and not any("HTTPValidationError" in str(schema) for schema in schemas)
