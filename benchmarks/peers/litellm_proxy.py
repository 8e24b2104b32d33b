"""LiteLLM's proxy in front of the same stub, in an environment of its own (`benchmarks/.venv-litellm`)."""

import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.turnlog_api import added_by, first_by, many_by
from benchmarks.upstream import Upstream, upstream

HERE = Path(__file__).resolve().parent.parent
COMMAND = Path(os.environ.get("LITELLM_COMMAND", HERE / ".venv-litellm" / "bin" / "litellm"))
START_S = 120
CONFIG = """
model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/m", api_base: "http://127.0.0.1:{port}/v1", api_key: "none"}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
litellm_settings: {{telemetry: false}}
"""


class Proxy:
    def __init__(self, place: str, behind: Upstream) -> None:
        if not COMMAND.exists():
            raise RuntimeError("litellm is not installed; see benchmarks/install.py")
        config = Path(place) / "litellm.yaml"
        config.write_text(CONFIG.format(port=behind.port), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
        command = [COMMAND, "--config", config, "--host", "127.0.0.1", "--port", str(self.port), "--num_workers", "1"]
        environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        environment.pop("PYTHONPATH", None)
        with (Path(place) / "log").open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError("litellm did not start")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def proxy(place: str, behind: Upstream) -> Generator[Proxy]:
    made = Proxy(place, behind)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


async def added(place: str, messages: int, size_bytes: int) -> dict[str, float]:
    async with upstream() as behind:
        with proxy(place, behind) as server:
            return await added_by(server.port, "", behind, messages, size_bytes, server.process.pid)


async def first(place: str) -> dict[str, float]:
    async with upstream() as behind:
        with proxy(place, behind) as server:
            return await first_by(server.port, "", behind)


async def many(place: str, clients: int, turns: int) -> dict[str, float]:
    async with upstream() as behind:
        with proxy(place, behind) as server:
            before = server.cpu_s()
            figures = await many_by(server.port, "", clients, turns)
            return figures | {"cpu_us": (server.cpu_s() - before) / clients / (turns + 1) * 1e6}
