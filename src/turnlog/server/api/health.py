"""Health checks and metrics.

`/healthz` answers 200 as long as the process runs, also if work in the background has failed for a minute: it names
that work, but restarting the process would only interrupt turns.
"""

from litestar import Response, get

from ...runtime import background
from .. import metrics
from ..http.bodies import Health, Liveness
from ..service import AnyRequest, principal_of, service_of


@get("/healthz", operation_id="healthz", summary="The process is alive", tags=["server"])
async def healthz() -> Liveness:
    failing = background.failing()
    return Liveness("failing" if failing else "ok", failing)


@get(
    "/readyz", operation_id="readyz", summary="The store can be written, and the server is not closing", tags=["server"]
)
async def readyz(request: AnyRequest) -> Health:
    service = service_of(request)
    service.check_open()
    await service.prove_writable()
    return Health("ok")


@get("/metrics", operation_id="metrics", summary="Counts for Prometheus", tags=["server"], media_type="text/plain")
async def count(request: AnyRequest) -> Response[bytes]:
    principal_of(request, "read")
    service = service_of(request)
    service.count_open()
    return Response(service.metrics.page(), media_type=metrics.MEDIA_TYPE)
