-- A keyword may be any piece of what was said, so words do not help to find it. A block is some messages of one
-- conversation, and pieces all the runs of three characters in them: a few thousand for all of them together, where
-- each message by itself has hundreds. What is not in a block yet, the newest messages, is simply looked through.
ALTER TABLE turnlog.conversations ADD COLUMN indexed_to bigint NOT NULL DEFAULT 0;
CREATE INDEX conversations_behind ON turnlog.conversations (agent, channel_id) WHERE message_count - indexed_to >= 64;

-- pieces is NULL where a block has more of them than a tsvector holds: then it is always looked through.
CREATE TABLE turnlog.blocks (
    agent      text COLLATE "C" NOT NULL,
    channel_id text COLLATE "C" NOT NULL,
    first_n    bigint NOT NULL,
    last_n     bigint NOT NULL,
    pieces     tsvector,
    PRIMARY KEY (agent, channel_id, first_n)
);
CREATE INDEX blocks_pieces ON turnlog.blocks USING gin (pieces);
CREATE INDEX blocks_whole ON turnlog.blocks (agent, channel_id) WHERE pieces IS NULL;

-- The messages after done, up to reached, become a block, unless somebody else was faster.
CREATE FUNCTION turnlog.block_1(in_agent text, in_channel text, done bigint, reached bigint, runs text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '10s', true), set_config('synchronous_commit', 'off', true);
    UPDATE turnlog.conversations c SET indexed_to = reached
        WHERE c.agent = in_agent AND c.channel_id = in_channel AND c.indexed_to = done;
    IF FOUND THEN
        INSERT INTO turnlog.blocks VALUES (in_agent, in_channel, done + 1, reached, array_to_tsvector(runs));
    END IF;
END $$;
