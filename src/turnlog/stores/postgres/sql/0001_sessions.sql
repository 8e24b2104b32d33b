-- Read as if the schema were called turnlog; the store puts the name it was given in its place.
-- Every key begins with session_id, so that each table can be partitioned by its hash without changing a statement.

CREATE TABLE turnlog.store_facts (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);

-- Sessions: the index row, folded from the entries of session_messages. meta_json is the whole row; the other
-- columns repeat what queries and people look for. session_no tells a session from an earlier one of the same id.
CREATE TABLE turnlog.sessions (
    session_id     text COLLATE "C" PRIMARY KEY,
    session_no     bigint GENERATED ALWAYS AS IDENTITY,
    session_key    text COLLATE "C" NOT NULL,
    agent_id       text COLLATE "C" NOT NULL,
    channel        text COLLATE "C" NOT NULL,
    label          text COLLATE "C",
    status         text COLLATE "C" NOT NULL,
    title          text NOT NULL,
    message_count  bigint NOT NULL,
    turn_count     bigint NOT NULL,
    token_estimate bigint NOT NULL,
    compactions    bigint NOT NULL,
    compaction_seq bigint NOT NULL,
    last_seq       bigint NOT NULL,
    boundary       bigint NOT NULL,
    selected_n     bigint NOT NULL,
    unfinished     boolean NOT NULL,
    fold           bigint NOT NULL,
    created_at     bigint NOT NULL,
    updated_at     bigint NOT NULL,
    searched_to    bigint NOT NULL DEFAULT 0,
    meta_json      text NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX sessions_newest ON turnlog.sessions (updated_at, session_id);
CREATE INDEX sessions_by_agent ON turnlog.sessions (agent_id, updated_at, session_id);
CREATE INDEX sessions_by_channel ON turnlog.sessions (channel, updated_at, session_id);
CREATE INDEX sessions_by_status ON turnlog.sessions (agent_id, status);
CREATE INDEX sessions_by_key ON turnlog.sessions (session_key);
CREATE INDEX sessions_by_label ON turnlog.sessions (label) WHERE label IS NOT NULL;
CREATE INDEX sessions_aside ON turnlog.sessions (status, updated_at, session_id)
    WHERE status IN ('archived', 'trashed');
CREATE INDEX sessions_unfinished ON turnlog.sessions (updated_at, session_id) WHERE unfinished;
CREATE INDEX sessions_unsearched ON turnlog.sessions (session_id) WHERE searched_to < last_seq;

-- What a list's search looks through, and all its runs of one to three characters: found by index, in any script, and
-- without an extension. A table of its own, because it changes seldom and sessions changes with every append.
CREATE TABLE turnlog.session_words (
    session_id text COLLATE "C" PRIMARY KEY,
    haystack   text NOT NULL,
    grams      tsvector NOT NULL
);
CREATE INDEX session_words_grams ON turnlog.session_words USING gin (grams);

-- One row an entry; meta_json is the entry. It is text, not jsonb: entries may hold \u0000, which jsonb refuses.
-- token names the append that wrote the row, so that one whose answer was lost can be told from one that never came.
CREATE TABLE turnlog.session_messages (
    session_id text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY,
    role       text,
    created_at text NOT NULL,
    token      bigint NOT NULL,
    meta_json  text NOT NULL,
    PRIMARY KEY (session_id, seq)
);

-- Tokens of each message, made by core.search, so that every store finds the same. Filled from sessions.searched_to.
-- words is NULL where a text has more different words than a tsvector holds: such a message is always looked at.
CREATE TABLE turnlog.session_search (
    session_id text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    id         bigint NOT NULL,
    words      tsvector,
    PRIMARY KEY (session_id, seq)
);
CREATE INDEX session_search_words ON turnlog.session_search USING gin (words);
CREATE INDEX session_search_newest ON turnlog.session_search (id);
CREATE INDEX session_search_whole ON turnlog.session_search (id) WHERE words IS NULL;

-- Small facts that belong to no session. value_json NULL: deleted a moment ago.
CREATE TABLE turnlog.ledger (
    space      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value_json text,
    expires_at bigint,
    token      bigint NOT NULL,
    PRIMARY KEY (space, key)
);
CREATE INDEX ledger_expiry ON turnlog.ledger (expires_at) WHERE expires_at IS NOT NULL;

-- Who has the turn of a session. Epochs rise for ever, so a row can go with its turn.
CREATE SEQUENCE turnlog.lease_epochs;
CREATE TABLE turnlog.leases (
    session_id text COLLATE "C" PRIMARY KEY,
    epoch      bigint NOT NULL,
    token      bigint NOT NULL,
    holder     text NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
