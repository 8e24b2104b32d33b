-- Which entry holds each fact that a program keeps in a session: derived from the entries of type facts, written with
-- them. key is UTF-8, as bytes: it may hold any text, and is in the order of its characters. Rows go with their session,
-- whichever version deletes it.
CREATE TABLE turnlog.session_facts (
    session_id text COLLATE "C" NOT NULL REFERENCES turnlog.sessions ON DELETE CASCADE,
    app        text COLLATE "C" NOT NULL,
    key        bytea NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (session_id, app, key)
);

-- Changes of the index: [[app, key in hexadecimal, seq or null], …], each name once.
CREATE FUNCTION turnlog.index_facts_1(in_id text, changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM turnlog.session_facts f USING jsonb_array_elements(changes) AS c (item)
        WHERE f.session_id = in_id AND f.app = c.item ->> 0 AND f.key = decode(c.item ->> 1, 'hex')
            AND c.item ->> 2 IS NULL;
    INSERT INTO turnlog.session_facts AS f (session_id, app, key, seq)
        SELECT in_id, c.item ->> 0, decode(c.item ->> 1, 'hex'), (c.item ->> 2)::bigint
        FROM jsonb_array_elements(changes) AS c (item) WHERE c.item ->> 2 IS NOT NULL
        ON CONFLICT (session_id, app, key) DO UPDATE SET seq = excluded.seq;
END $$;
