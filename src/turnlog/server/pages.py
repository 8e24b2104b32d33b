"""The page's routes. Whoever comes here is signed in already; `/signin` and `/static/` alone are open to everybody."""

from litestar.types import ControllerRouterHandler

ROUTES: list[ControllerRouterHandler] = []
