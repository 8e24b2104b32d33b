"""What each contestant promises: the other half of every comparison of cost."""

HEAD = ("contestant", "on the disk when the call returns", "kept apart", "what one append writes")
ROWS = (
    (
        "Turnlog JSONL",
        "`full`: yes (fdatasync); `os`: survives a crash of the process, not of the machine",
        "a lease a session, across processes; an overtaken holder cannot write",
        "the two lines, and a line of the index",
    ),
    (
        "Turnlog SQLite",
        "`full`: yes (WAL, `synchronous=FULL`); `os`: as above",
        "as above",
        "two rows and the index row, one transaction",
    ),
    (
        "pi `SessionManager`",
        "no",
        "nothing",
        "two lines, opening and closing the file for each; all entries stay in memory",
    ),
    (
        "openai-agents `SQLiteSession`",
        "yes (WAL, SQLite's default `synchronous=FULL`); there is no other mode",
        "a lock for the duration of the call",
        "two rows, one transaction",
    ),
    (
        "langgraph `SqliteSaver`",
        "yes (WAL, default `FULL`)",
        "a lock for the duration of the call",
        "the whole list of messages again",
    ),
    (
        "google-adk `DatabaseSessionService`",
        "yes (rollback journal, default `FULL`)",
        "a lock a session in the process; a stale session is refused",
        "two rows, two transactions",
    ),
    (
        "Turnlog PostgreSQL",
        "`full`: yes (flushed also where the server's `synchronous_commit` is off)",
        "a lease a session, across servers; an overtaken holder cannot write",
        "two rows and the index row, one transaction, together with other sessions'",
    ),
    (
        "openai-agents `SQLAlchemySession`, PostgreSQL",
        "yes (`synchronous_commit = on`)",
        "a transaction",
        "two rows and the session's, one transaction",
    ),
    (
        "langgraph `AsyncPostgresSaver`",
        "yes (`synchronous_commit = on`)",
        "a lock for the duration of the call",
        "the whole list of messages again",
    ),
    ("claw0 design", "no", "nothing", "two lines, and after each the whole index of all sessions"),
    ("one write", "no", "nothing", "the two lines"),
    ("write + fdatasync", "yes", "nothing", "the two lines"),
)


def table() -> str:
    lines = [HEAD, ("---",) * len(HEAD), *ROWS]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
