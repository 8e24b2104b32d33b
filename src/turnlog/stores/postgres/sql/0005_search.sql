-- Search by units (an entry, or a part of a long one), the newest first by their time, with what was said by whom. The
-- index is derived: it is filled anew from sessions.indexed_to.
TRUNCATE turnlog.session_search;
ALTER TABLE turnlog.session_search
    ADD COLUMN part int NOT NULL DEFAULT 0,
    ADD COLUMN at bigint NOT NULL DEFAULT 0,
    ADD COLUMN role text NOT NULL DEFAULT '',
    DROP CONSTRAINT session_search_pkey,
    ADD PRIMARY KEY (session_id, seq, part);
DROP INDEX turnlog.session_search_whole;
CREATE INDEX session_search_time ON turnlog.session_search (at DESC, session_id, seq DESC, part);

ALTER TABLE turnlog.sessions ADD COLUMN indexed_to bigint NOT NULL DEFAULT 0;
DROP INDEX turnlog.sessions_unsearched;
CREATE INDEX sessions_unindexed ON turnlog.sessions (session_id) WHERE indexed_to < last_seq;
