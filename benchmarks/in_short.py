"""The measured comparison in short, for the README and the page about alternatives, made from `results.md`.

`python -m benchmarks.in_short` writes it again; a test compares. The first figure of a measurement is the one meant.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.md"
PAGES = (ROOT / "README.md", ROOT / "docs" / "comparison.md")
BEGIN, END = "<!-- measured: benchmarks/in_short.py writes this -->", "<!-- end of measured -->"
HEADING = ("work", "Turnlog", "openai-agents", "LangGraph", "Google ADK", "pi")
ROWS = (
    ("append a turn, on the disk when it returns", "durable/sqlite", "durable/openai_agents",
     "append/1000/langgraph_sqlite", "append/1000/adk", ""),
    ("the same at 100,000 messages, `durability=\"os\"`", "append/100000/jsonl", "append/100000/openai_agents",
     "append/100000/langgraph_sqlite", "append/100000/adk", "append/100000/pi"),
    ("resume the newest 40 of 100,000 messages", "resume/100000/sqlite", "resume/100000/openai_agents", "",
     "resume/100000/adk", "resume/100000/pi"),
    ("read all 100,000 messages", "full/sqlite", "full/openai_agents", "full/langgraph_sqlite", "full/adk", ""),
    ("PostgreSQL, 16 sessions at once, appends", "postgres/16/postgres", "postgres/16/sqlalchemy_session",
     "postgres/16/langgraph_postgres", "", ""),
    ("server, 64 clients, turns", "server/full/sqlite", "", "", "server/many/adk_server", ""),
    ("import the library", "import/turnlog", "import/openai_agents", "import/langgraph_sqlite", "import/adk", ""),
)  # fmt: skip


def figures(page: str) -> dict[str, str]:
    """Measurement → its median, as the table of all figures has it."""
    found: dict[str, str] = {}
    for name, median in re.findall(r"^\| (\S+/\S+(?: \w+)?) \| ([^|]+) \|", page, re.MULTILINE):
        found.setdefault(name, median.strip())
    return found


def table(page: str) -> str:
    known = figures(page)
    rows = [[work, *(known[name] if name else "" for name in names)] for work, *names in ROWS]
    lines = [HEADING, ("---",) * len(HEADING), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def with_table(text: str, page: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(page)}\n\n{END}{after}"


def write() -> None:
    page = RESULTS.read_text(encoding="utf-8")
    for path in PAGES:
        path.write_text(with_table(path.read_text(encoding="utf-8"), page), encoding="utf-8")


if __name__ == "__main__":
    write()
