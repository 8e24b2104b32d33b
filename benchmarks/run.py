"""`python benchmarks/run.py [--quick] [--only NAME]`: compares Turnlog with other libraries on the same work.

Each figure comes from a fresh process. The contestants of a group take turns, round after round, so that what else
the machine does falls on all of them alike; a figure is the median of the rounds, a ratio the median of the rounds'
ratios. Nothing here fails because of the clock: a reach that is missed is said, and the run ends well.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The script's own directory would make `limits` or `plan` importable by any package the peers bring along.
sys.path[0] = str(ROOT)

from benchmarks import in_short, install, postgres_server, report  # noqa: E402 - the path has to be set first
from benchmarks.claims import Results  # noqa: E402 - the path has to be set first
from benchmarks.plan import FULL, QUICK, Fixture, Group, Scale, Task, groups  # noqa: E402 - the path has to be set first
from benchmarks.workload import make_turns  # noqa: E402 - the path has to be set first

HERE = ROOT / "benchmarks"
DATA = HERE / ".data"
PI_TURNS = 64
LIMIT_S = 300
WITH_TEST_PACKAGES = ("paint", "claude_append")
"""They need what the tests' environment has: a browser, and the Claude Agent SDK if `make adapters` was run."""


class Failed(Exception):
    """A measurement ended without an answer; the rest of the run goes on without it."""


def call(side: str, verb: str, arguments: dict, place: Path) -> dict[str, float]:
    asked = arguments | ({} if verb == "start" else {"place": str(place)})
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "RUN_PYTHON": sys.executable,  # has what the terminal needs; the peers' environment has not
    }
    if side == "pi":
        asked |= {"entry": str(install.PI_ENTRY), "turns": make_turns()[:PI_TURNS]}
        command, given = ["node", str(HERE / "peers" / "pi.mjs"), verb], json.dumps(asked)
    else:
        python = sys.executable if verb in WITH_TEST_PACKAGES else str(install.PYTHON)
        command = [python, "-m", "benchmarks.measure", side, verb, json.dumps(asked)]
        given = ""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            env=environment,
            cwd=DATA,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"no answer within {LIMIT_S} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        # The page is for any reader: it should not say where on this machine the project lies.
        raise Failed(last.replace(f"{ROOT}{os.sep}", ""))
    return json.loads(done.stdout.strip().splitlines()[-1])


def build_fixture(fixture: Fixture) -> str | None:
    """None if it is there, otherwise why not."""
    place = DATA / fixture.name
    if place.exists():
        return None
    place.mkdir()
    begin = time.perf_counter()
    try:
        call(fixture.side, fixture.verb, fixture.arguments, place)
    except Failed as failure:
        shutil.rmtree(place)
        return str(failure)
    if time.perf_counter() - begin > 5:
        print(f"  prepared {fixture.name} in {time.perf_counter() - begin:.0f} s", flush=True)
    return None


def run_task(task: Task) -> dict[str, float]:
    scratch = DATA / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    if task.fixture is None:
        scratch.mkdir()
        return call(task.side, task.verb, task.arguments, scratch)
    place = DATA / task.fixture.name
    if task.copy:
        shutil.copytree(place, scratch)
        # Otherwise the first sync of the measurement would also write out the copy.
        os.sync()
        place = scratch
    return call(task.side, task.verb, task.arguments, place)


def run_group(group: Group, rounds: int, skip: set[str], results: Results, failures: dict[str, str]) -> None:
    print(f"{group.name}: {group.title}", flush=True)
    tasks = [task for task in group.tasks if task.side not in skip]
    for fixture in dict.fromkeys(task.fixture.name for task in tasks if task.fixture):
        chosen = next(task.fixture for task in tasks if task.fixture and task.fixture.name == fixture)
        if why := build_fixture(chosen):
            print(f"  {fixture} could not be prepared: {why}", flush=True)
            failures |= {task.key: why for task in tasks if task.fixture and task.fixture.name == fixture}
    os.sync()
    for number in range(rounds):
        for task in tasks:
            if task.key in failures or number >= task.rounds:
                continue
            try:
                answer = run_task(task)
            except Failed as failure:
                # An incomplete measurement must not be compared with complete ones.
                results.pop(task.key, None)
                failures[task.key] = str(failure)
                print(f"  {task.key} failed: {failure}", flush=True)
            else:
                results.setdefault(task.key, []).append(answer)


def parse_arguments() -> argparse.Namespace:
    names = [group.name for group in groups(QUICK)]
    parser = argparse.ArgumentParser(description="Compares Turnlog with other libraries on the same work.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, two rounds")
    parser.add_argument("--only", metavar="NAME", choices=names, help="one group: " + ", ".join(names))
    return parser.parse_args()


def prepare(sides: set[str]) -> set[str]:
    """Makes the environments that these contestants need; returns those that are left out."""
    install.make_venv()
    install.compile_own()
    skip: set[str] = set()
    for side, name, make in (("pi", "pi", install.make_node), ("peers.litellm_proxy", "LiteLLM", install.make_litellm)):
        if side in sides and (why := make()):
            print(f"{name} is left out: {why}", flush=True)
            skip.add(side)
    return skip


def run(scale: Scale, only: str | None) -> tuple[Results, dict[str, str], list[str]]:
    """The figures, what failed, and what has to be known of the servers that were used."""
    chosen = [group for group in groups(scale) if only in (None, group.name)]
    skip = prepare({task.side for group in chosen for task in group.tasks})
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    results: Results = {}
    failures: dict[str, str] = {}
    servers: list[str] = []
    try:
        for group in chosen:
            with ExitStack() as stack:
                if group.database:
                    servers.append(stack.enter_context(postgres_server.serving(os.environ)))
                run_group(group, scale.rounds, skip, results, failures)
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
    return results, failures, servers


def main() -> None:
    asked = parse_arguments()
    scale = QUICK if asked.quick else FULL
    begin, load = time.perf_counter(), os.getloadavg()[0]
    results, failures, servers = run(scale, asked.only)
    whole = not asked.quick and asked.only is None
    minutes = (time.perf_counter() - begin) / 60
    text = report.write(results, failures, scale, servers, whole=whole, minutes=minutes, load=load)
    if whole:
        in_short.write()
    print("\n" + text)


if __name__ == "__main__":
    main()
