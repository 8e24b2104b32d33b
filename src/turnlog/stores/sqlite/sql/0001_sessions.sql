-- Sessions: the index row, folded from the entries of session_messages. meta_json is the whole row; the other
-- columns repeat what queries and people look for.
CREATE TABLE sessions (
    session_id     TEXT PRIMARY KEY,
    session_key    TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    channel        TEXT NOT NULL,
    label          TEXT,
    status         TEXT NOT NULL,
    title          TEXT NOT NULL,
    message_count  INTEGER NOT NULL,
    turn_count     INTEGER NOT NULL,
    token_estimate INTEGER NOT NULL,
    compactions    INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    boundary       INTEGER NOT NULL,
    selected_n     INTEGER NOT NULL,
    unfinished     INTEGER NOT NULL,
    fold           INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    haystack       TEXT NOT NULL,
    meta_json      TEXT NOT NULL
);
-- Only these two follow every append, so that it costs little; the others change when a session does.
CREATE INDEX sessions_newest ON sessions (updated_at, session_id);
CREATE INDEX sessions_by_agent ON sessions (agent_id, updated_at, session_id);
CREATE INDEX sessions_aside ON sessions (status, updated_at, session_id) WHERE status IN ('archived', 'trashed');
CREATE INDEX sessions_by_status ON sessions (agent_id, status);
CREATE INDEX sessions_by_key ON sessions (session_key);
CREATE INDEX sessions_by_label ON sessions (label) WHERE label IS NOT NULL;

-- Which session a key's messages go to, as the log says it (the ledger decides between racing openers).
CREATE TABLE session_index (
    session_key       TEXT PRIMARY KEY,
    active_session_id TEXT NOT NULL,
    updated_at        INTEGER NOT NULL
) WITHOUT ROWID;

-- One row an entry; meta_json is the entry, content is for reading by people and other programs.
CREATE TABLE session_messages (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    role       TEXT,
    created_at TEXT NOT NULL,
    meta_json  TEXT NOT NULL,
    content    TEXT GENERATED ALWAYS AS (
        CASE
            WHEN json_extract(meta_json, '$.type') = 'compaction' THEN
                CASE role WHEN 'assistant' THEN '[Session Compaction Summary]' || char(10) ELSE '' END
                || json_extract(meta_json, '$.summary')
            WHEN json_array_length(meta_json, '$.content') = 1 THEN
                coalesce(json_extract(meta_json, '$.content[0].text'), json_extract(meta_json, '$.content'))
            ELSE json_extract(meta_json, '$.content')
        END
    ) VIRTUAL
);
CREATE UNIQUE INDEX session_messages_by_seq ON session_messages (session_id, seq);

-- compaction_after_message_id and compaction_summary of the newest active compaction.
CREATE TABLE session_state (
    session_id TEXT NOT NULL,
    key        TEXT NOT NULL,
    value_json TEXT NOT NULL,
    PRIMARY KEY (session_id, key)
) WITHOUT ROWID;

-- Small facts that belong to no session.
CREATE TABLE ledger (
    space      TEXT NOT NULL,
    key        TEXT NOT NULL,
    value_json TEXT NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
CREATE INDEX ledger_expiry ON ledger (expires_at) WHERE expires_at IS NOT NULL;

-- Tokens of each message, made by core.search, so that every store finds the same. Filled from a high-water mark.
CREATE VIRTUAL TABLE session_search USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');
CREATE TABLE store_facts (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO store_facts VALUES ('search_indexed_to', 0);
