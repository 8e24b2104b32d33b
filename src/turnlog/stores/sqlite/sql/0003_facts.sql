-- Which entry holds each fact that a program keeps in a session: derived from the entries of type facts, written with
-- them. key is UTF-8, as a blob: it may hold any text, and is in the order of its characters.
CREATE TABLE session_facts (
    session_id TEXT NOT NULL,
    app        TEXT NOT NULL,
    key        BLOB NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (session_id, app, key)
) WITHOUT ROWID;
