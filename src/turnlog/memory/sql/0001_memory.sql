-- Read as if the schema were called turnlog; the name of the memory's own schema is put in its place.

CREATE TABLE turnlog.store_facts (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);

CREATE TABLE turnlog.memos (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent  text COLLATE "C" NOT NULL,
    owner  text COLLATE "C" NOT NULL,
    ts     bigint NOT NULL,
    length bigint NOT NULL,
    token  bigint NOT NULL UNIQUE,
    text   text NOT NULL
);
CREATE INDEX memos_by_owner ON turnlog.memos (agent, owner, id) INCLUDE (length);

-- How often each word is in each memo: words are tokens of core.search, and pairs of neighbouring Chinese or Japanese
-- characters. agent and owner are repeated, so that a recall reads nothing that belongs to others.
CREATE TABLE turnlog.memo_words (
    word  text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    memo  bigint NOT NULL REFERENCES turnlog.memos ON DELETE CASCADE,
    times bigint NOT NULL,
    PRIMARY KEY (word, agent, owner, memo)
);
CREATE INDEX memo_words_by_memo ON turnlog.memo_words (memo);

-- The memo's number. May be repeated: a call whose answer was lost adds nothing the second time.
CREATE FUNCTION turnlog.save_1(
    in_agent text, in_owner text, at bigint, in_length bigint, in_text text, words text[], counts bigint[],
    in_token bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO turnlog.memos (agent, owner, ts, length, token, text)
        VALUES (in_agent, in_owner, at, in_length, in_token, in_text)
        ON CONFLICT (token) DO NOTHING RETURNING id INTO number;
    IF number IS NULL THEN
        SELECT m.id INTO number FROM turnlog.memos m WHERE m.token = in_token;
        RETURN number;
    END IF;
    INSERT INTO turnlog.memo_words
        SELECT w.word, in_agent, in_owner, number, w.times FROM unnest(words, counts) AS w (word, times);
    RETURN number;
END $$;
