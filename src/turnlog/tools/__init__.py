"""The tools of an agent: Python functions, files of the workspace, its own history, MCP servers.

A failing tool gives a result, not an exception. Tools know no store and no session: a Context gives them what they
need. MCP is in `tools.mcp`, which needs the extra `mcp`.
"""

from .approval import ApprovalMode, ApprovalPolicy
from .base import BUILT_IN_MAX_CHARS, OUTPUT_MAX_CHARS, TIMEOUT_S, Context, Tool
from .files import file_tools
from .functions import tool
from .history import history_tools
from .toolbox import Toolbox

__all__ = [
    "BUILT_IN_MAX_CHARS", "OUTPUT_MAX_CHARS", "TIMEOUT_S", "ApprovalMode", "ApprovalPolicy", "Context", "Tool",
    "Toolbox", "file_tools", "history_tools", "tool",
]  # fmt: skip
