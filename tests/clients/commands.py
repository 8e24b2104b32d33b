"""How each command is started, as its documentation says."""

import json
import subprocess

from .running import needs

CODEX_CONFIG = """
model = "{model}"
model_provider = "tl"

[model_providers.tl]
name = "tl"
base_url = "{base}/v1"
env_key = "TL"
wire_api = "responses"
{more}
"""


def claude_on(machine, folder, ok=True, **more):
    env = {
        "ANTHROPIC_BASE_URL": machine.base,
        "ANTHROPIC_AUTH_TOKEN": machine.token,
        "ANTHROPIC_MODEL": "m",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        **more,
    }
    command = folder / "node_modules" / ".bin" / "claude"

    def run(*args):
        done = machine.run(command, *args, "--output-format", "json", "--allowedTools", "Bash(echo:*)", env=env, ok=ok)
        return json.loads(done.stdout) if done.stdout.startswith("{") else {"is_error": True, "text": done.stdout}

    return run


def opencode_on(machine, *, model="m", **limit):
    folder = needs("opencode")
    subprocess.run(["git", "init", "-q", str(machine.home)], check=True)
    options = {"baseURL": f"{machine.base}/v1", "apiKey": machine.token}
    models = {model: {"limit": {"context": 32000, "output": 4000, **limit}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    settings = {"provider": {"tl": provider}, "model": f"tl/{model}", "small_model": f"tl/{model}", "autoupdate": False}
    (machine.home / "opencode.json").write_text(json.dumps(settings))
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    command = folder / "node_modules" / ".bin" / "opencode"
    return lambda *args, **how: machine.run(command, *args, env=env, **how)


def llm_on(machine, model="m"):
    command = needs("sdks") / "bin" / "llm"
    folder = machine.home / "llm"
    folder.mkdir(exist_ok=True)
    known = {"model_id": "tl", "model_name": model, "api_base": f"{machine.base}/v1", "api_key_name": "tl"}
    (folder / "extra-openai-models.yaml").write_text(
        json.dumps([{**known, "can_stream": True, "supports_tools": True}])
    )
    env = {"LLM_USER_PATH": str(folder)}
    machine.run(command, "keys", "set", "tl", "--value", machine.token, env=env)
    return lambda *args, **how: machine.run(command, *args, env=env, **how)


def aider_on(machine, model="m"):
    """Asks the lines one after the other."""
    folder = needs("aider")
    (machine.home / "a.txt").write_text("hello\n")
    env = {
        "OPENAI_API_BASE": f"{machine.base}/v1",
        "OPENAI_API_KEY": machine.token,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    options = ["--no-show-model-warnings", "--no-check-update", "--no-analytics", "--yes-always", "--no-git"]
    plain = ["--map-tokens", "0", "--no-pretty", "--no-fancy-input", "a.txt"]
    command = [folder / "bin" / "aider", "--model", f"openai/{model}", *options, *plain]
    return lambda *lines, more=(): machine.run(*command, *more, env=env, stdin="\n".join([*lines, "/exit", ""]))


def codex_on(machine, *, base=None, more="", model="m", ok=True):
    folder = needs("codex")
    home = machine.home / "codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CODEX_CONFIG.format(base=base or machine.base, more=more, model=model))
    command = folder / "node_modules" / ".bin" / "codex"

    def run(*args):
        env = {"CODEX_HOME": str(home), "TL": machine.token}
        done = machine.run(command, "exec", "--skip-git-repo-check", "--json", *args, env=env, ok=ok)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return run
