"""The benchmark's own Python and npm environments, made once and made again when what they are made from changes."""

import hashlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = HERE / ".venv"
NODE = HERE / ".node"
PYTHON = VENV / "bin" / "python"
LITELLM = HERE / ".venv-litellm" / "bin" / "litellm"
PI = "@mariozechner/pi-coding-agent"
PI_VERSION = "0.73.1"
PI_ENTRY = NODE / "node_modules" / PI / "dist" / "index.js"


def project_requirements() -> list[str]:
    """What the project needs at run time. Its own code is put on the path instead of being built and installed."""
    path = ROOT / "pyproject.toml"
    if not path.exists():
        return []
    return tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("dependencies", [])


def make_venv() -> None:
    wanted = project_requirements()
    recipe = (HERE / "requirements.txt").read_text(encoding="utf-8") + "\n".join([*wanted, sys.version])
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    stamp = VENV / "made-from"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    print("making benchmarks/.venv (once; a minute or two)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "-qq", "-r", HERE / "requirements.txt", *wanted], check=True)
    stamp.write_text(digest, encoding="utf-8")


def compile_own() -> None:
    """As pip does with the peers: where Python writes no bytecode, each process would compile our code anew."""
    subprocess.run([PYTHON, "-m", "compileall", "-q", ROOT / "src"], check=True)


def make_litellm() -> str | None:
    """None if LiteLLM's proxy is ready, otherwise why it is left out. Its pins agree with those of no other peer."""
    if LITELLM.exists():
        return None
    print("making benchmarks/.venv-litellm (once; a minute or two)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", LITELLM.parent.parent], check=True)
    python = LITELLM.parent / "python"
    done = subprocess.run([python, "-m", "pip", "install", "-qq", "litellm[proxy]"], check=False)
    return None if done.returncode == 0 and LITELLM.exists() else "pip could not install it"


def make_node() -> str | None:
    """None if pi is ready, otherwise why it is left out."""
    if PI_ENTRY.exists():
        return None if shutil.which("node") else "node is not installed"
    if not shutil.which("npm"):
        return "npm is not installed"
    print("installing pi into benchmarks/.node (once)", flush=True)
    NODE.mkdir(exist_ok=True)
    command = ["npm", "install", "--prefix", str(NODE), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run([*command, f"{PI}@{PI_VERSION}"], check=False, capture_output=True, text=True)
    if done.returncode or not PI_ENTRY.exists():
        return "npm could not install it: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
    return None
