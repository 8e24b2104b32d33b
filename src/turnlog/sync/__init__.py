"""The synchronous API: the same names and types as the asynchronous one, for scripts, notebooks and threads.

`facade` joins a caller to the loop that the engine runs in a thread of its own. The other modules are generated from
the asynchronous classes (`python -m tests.generated`): each of their methods only calls the method of the same name.
"""

from .access import SyncAccess as SyncAccess
from .handle import SyncSessionHandle as SyncSessionHandle
from .library import SyncTurnlog as SyncTurnlog
from .sessions import SyncSessions as SyncSessions
