from ..turns.conftest import url

__all__ = ["url"]
