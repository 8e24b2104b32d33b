-- Search by units (an entry, or a part of a long one), the newest first by their time, with what was said by whom. The
-- index is derived: it is filled anew from sessions.indexed_to. A server of the version before goes on with searched_to.
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

-- Makes the next messages of some sessions searchable, each unless somebody else has meanwhile. A group has id, no,
-- done and reached (the mark before and after), and units: [[seq, part, at, role, [lexeme, …]], …].
CREATE FUNCTION turnlog.searchable_2(groups jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    PERFORM turnlog.begin_1(false);
    FOR g IN SELECT * FROM jsonb_to_recordset(groups)
        AS x (id text, no bigint, done bigint, reached bigint, units jsonb)
    LOOP
        UPDATE turnlog.sessions s SET indexed_to = g.reached, searched_to = greatest(s.searched_to, g.reached)
            WHERE s.session_id = g.id AND s.session_no = g.no AND s.indexed_to = g.done;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO turnlog.session_search AS t (session_id, seq, part, id, at, role, words)
            SELECT g.id, m.seq, (e.item ->> 1)::int, m.id, (e.item ->> 2)::bigint, e.item ->> 3,
                array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(e.item -> 4)))
            FROM jsonb_array_elements(g.units) AS e (item)
            JOIN turnlog.session_messages m ON m.session_id = g.id AND m.seq = (e.item ->> 0)::bigint
            ON CONFLICT (session_id, seq, part) DO UPDATE
                SET at = excluded.at, role = excluded.role, words = excluded.words;
    END LOOP;
END $$;
