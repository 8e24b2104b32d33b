"""What an agent can do besides talking: Python functions, files of the workspace, its own history, MCP servers.

A failing tool is a result, not an exception. Tools know no store and no session: what they need from outside is
handed to them in a Context. MCP is in `tools.mcp`, which needs the extra of that name.
"""

from .base import BUILT_IN_MAX_CHARS, OUTPUT_MAX_CHARS, TIMEOUT_S, Context, Tool
from .files import file_tools
from .functions import tool
from .histories import history_tools
from .toolbox import Toolbox

__all__ = [
    "BUILT_IN_MAX_CHARS",
    "OUTPUT_MAX_CHARS",
    "TIMEOUT_S",
    "Context",
    "Tool",
    "Toolbox",
    "file_tools",
    "history_tools",
    "tool",
]
