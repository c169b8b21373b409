"""ApiVersions (KIP-35, KIP-511): which APIs and versions are served here, and the metadata level (KIP-584)."""

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
from logboom.metadata.levels import FEATURE, OWN_LEVELS

_API_KEY: Final = 18
_FEATURES_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: Any) -> Reply:
    """The same response for every client, once its software name and version are found valid (KIP-511)."""
    if context.api_version >= 3:
        words = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(word) for word in words):
            return _response(context.api_version, ErrorCode.invalid_request, everything=False)
    return _encoded(context.api_version, context.broker.catalog.image.level)


def handle_unsupported(context: RequestContext, frame: memoryview, position: int) -> EncodedResponse:
    """A newer client's version: UNSUPPORTED_VERSION in a version 0 body, with the range to ask again in (KIP-511)."""
    return EncodedResponse((encode(_response(0, ErrorCode.unsupported_version, everything=False)),))


@cache
def _encoded(version: int, level: int) -> EncodedResponse:
    features = _features(version, level) if version >= _FEATURES_FROM else {}
    return EncodedResponse((encode(_response(version, ErrorCode.none, everything=True, **features)),))


def _features(version: int, level: int) -> dict[str, Any]:
    """The metadata levels that this program speaks, and that of the cluster, which tells its states apart by itself."""
    cls = response_class(_API_KEY, version)
    supported, finalized = nested(cls, "supported_features"), nested(cls, "finalized_features")
    oldest, newest = OWN_LEVELS
    return {
        "supported_features": (make(supported, name=FEATURE, min_version=oldest, max_version=newest),),
        "finalized_features_epoch": level,
        "finalized_features": (make(finalized, name=FEATURE, max_version_level=level, min_version_level=level),),
    }


def _response(version: int, error: ErrorCode, *, everything: bool, **features: Any) -> Entity:
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
        **features,
    )


HANDLER = Handler(api_key=_API_KEY, min_version=0, max_version=4, handle=handle, handle_unsupported=handle_unsupported)
