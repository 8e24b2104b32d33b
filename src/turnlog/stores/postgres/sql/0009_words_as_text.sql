-- No version reads session_search in the order of this index any more.
DROP INDEX turnlog.session_search_newest;

-- Makes the next messages of some sessions searchable, each unless somebody else has meanwhile. A group has id, no,
-- done and reached (the mark before and after), and units: [[seq, part, at, role, "lexeme lexeme …"], …]. Lexemes are
-- letters and digits, and marks without blanks, quotes, colons and backslashes; one text of them takes the database a
-- quarter less time than a list.
CREATE FUNCTION turnlog.searchable_3(groups jsonb) RETURNS void LANGUAGE plpgsql AS $$
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
            SELECT g.id, m.seq, (e.item ->> 1)::int, m.id, (e.item ->> 2)::bigint, e.item ->> 3, (e.item ->> 4)::tsvector
            FROM jsonb_array_elements(g.units) AS e (item)
            JOIN turnlog.session_messages m ON m.session_id = g.id AND m.seq = (e.item ->> 0)::bigint
            ON CONFLICT (session_id, seq, part) DO UPDATE
                SET at = excluded.at, role = excluded.role, words = excluded.words;
    END LOOP;
END $$;
