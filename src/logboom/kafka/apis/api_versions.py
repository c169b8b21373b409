"""ApiVersions (KIP-35, KIP-511): which APIs and versions are served here."""

import re
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode

from logboom.kafka.apis import load_handlers
from logboom.kafka.handlers.context import RequestContext
from logboom.kafka.handlers.handler import Entity, Handler, Reply
from logboom.kafka.wire.encoded import EncodedResponse
from logboom.kafka.wire.messages import make, milliseconds, nested, response_class
from logboom.kafka.wire.writing import encode

_API_KEY: Final = 18
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: Any) -> Reply:
    """The same response for every client, once its software name and version are found valid (KIP-511)."""
    if context.api_version >= 3:
        words = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(word) for word in words):
            return _response(context.api_version, ErrorCode.invalid_request, everything=False)
    return _encoded(context.api_version)


def handle_unsupported(context: RequestContext, frame: memoryview, position: int) -> EncodedResponse:
    """A newer client's version: UNSUPPORTED_VERSION in a version 0 body, with the range to ask again in (KIP-511)."""
    return EncodedResponse((encode(_response(0, ErrorCode.unsupported_version, everything=False)),))


@cache
def _encoded(version: int) -> EncodedResponse:
    return EncodedResponse((encode(_response(version, ErrorCode.none, everything=True)),))


def _response(version: int, error: ErrorCode, *, everything: bool) -> Entity:
    cls = response_class(_API_KEY, version)
    entry = nested(cls, "api_keys")
    served = load_handlers().values() if everything else (HANDLER,)
    return make(
        cls,
        error_code=error,
        throttle_time=milliseconds(0),
        api_keys=tuple(
            make(entry, api_key=api.api_key, min_version=api.first_advertised, max_version=api.max_version)
            for api in served
        ),
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=4, handle=handle, handle_unsupported=handle_unsupported)
