#!/bin/sh
# Fetches the clients that tests/clients runs, into a directory outside the repository that later runs use again.
# A client that cannot be fetched is left out, and its tests are skipped.
set -u
into="${TURNLOG_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/turnlog-clients}"
python="${PYTHON:-python3}"
mkdir -p "$into"

environment() { # NAME PACKAGE…
    name=$1
    shift
    test -e "$into/$name/.done" && return
    echo "Fetching $name: $*"
    if "$python" -m venv "$into/$name" && "$into/$name/bin/pip" install -q --disable-pip-version-check "$@"; then
        touch "$into/$name/.done"
    else
        echo "$name could not be fetched; its tests will be skipped"
    fi
}

package() { # NAME PACKAGE…
    name=$1
    shift
    test -e "$into/$name/.done" && return
    echo "Fetching $name: $*"
    if mkdir -p "$into/$name" && npm install --silent --no-audit --no-fund --prefix "$into/$name" "$@"; then
        touch "$into/$name/.done"
    else
        echo "$name could not be fetched; its tests will be skipped"
    fi
}

environment sdks 'openai>=3.49' 'anthropic>=2.8' langchain-openai llm
environment older 'pydantic-ai-slim[openai,anthropic]' 'anthropic<2'
package ai-sdk ai@6 @ai-sdk/openai-compatible @ai-sdk/openai @ai-sdk/anthropic zod
package codex @openai/codex
package claude-code @anthropic-ai/claude-code@2.1.197
package opencode opencode-ai
environment agent-sdk claude-agent-sdk
environment aider aider-chat
