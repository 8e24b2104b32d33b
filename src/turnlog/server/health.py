"""Is it alive, can it write, how much has it done."""

from litestar import Response, get

from . import metrics
from .bodies import Health
from .service import Asked, service_of, who_asks


@get("/healthz", operation_id="healthz", summary="The process is alive", tags=["server"])
async def healthz() -> Health:
    return Health("ok")


@get(
    "/readyz", operation_id="readyz", summary="The store can be written, and the server is not closing", tags=["server"]
)
async def readyz(request: Asked) -> Health:
    service = service_of(request)
    service.check_open()
    await service.prove_writable()
    return Health("ok")


@get("/metrics", operation_id="metrics", summary="Counts for Prometheus", tags=["server"], media_type="text/plain")
async def count(request: Asked) -> Response[bytes]:
    who_asks(request, "read")
    service = service_of(request)
    service.metrics.streams.set(len(service.streams))
    return Response(service.metrics.page(), media_type=metrics.MEDIA_TYPE)
