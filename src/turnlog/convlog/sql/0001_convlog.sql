-- Read as if the schema were called turnlog; the name of the convlog's own schema is put in its place.

CREATE TABLE turnlog.store_facts (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);

CREATE TABLE turnlog.conversations (
    agent         text COLLATE "C" NOT NULL,
    channel_id    text COLLATE "C" NOT NULL,
    channel_type  text COLLATE "C" NOT NULL,
    message_count bigint NOT NULL,
    first_at      bigint NOT NULL,
    last_at       bigint NOT NULL,
    PRIMARY KEY (agent, channel_id)
) WITH (fillfactor = 80);

-- n counts within the conversation, without gaps. record_json is the message; it is text, not jsonb, because people
-- may say \u0000. folded is what a keyword is looked for in. token names the call that wrote the row.
CREATE TABLE turnlog.messages (
    agent       text COLLATE "C" NOT NULL,
    channel_id  text COLLATE "C" NOT NULL,
    n           bigint NOT NULL,
    sender      text COLLATE "C" NOT NULL,
    folded      text NOT NULL,
    token       bigint NOT NULL,
    record_json text NOT NULL,
    PRIMARY KEY (agent, channel_id, n)
);
CREATE INDEX messages_by_sender ON turnlog.messages (sender, agent, channel_id);
CREATE INDEX messages_by_token ON turnlog.messages (token);

-- May be repeated: a call whose answer was lost writes nothing the second time. Not flushed, for no promise rests on it.
CREATE FUNCTION turnlog.write_1(
    in_agent text, in_channel text, in_type text, at bigint, in_sender text, in_folded text, record text, in_token bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM set_config('lock_timeout', '10s', true), set_config('synchronous_commit', 'off', true);
    INSERT INTO turnlog.conversations VALUES (in_agent, in_channel, in_type, 0, at, at) ON CONFLICT DO NOTHING;
    SELECT c.message_count + 1 INTO number
        FROM turnlog.conversations c WHERE c.agent = in_agent AND c.channel_id = in_channel FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM turnlog.messages m WHERE m.token = in_token) THEN
        RETURN;
    END IF;
    INSERT INTO turnlog.messages VALUES (in_agent, in_channel, number, in_sender, in_folded, in_token, record);
    UPDATE turnlog.conversations c
        SET message_count = number, first_at = least(c.first_at, at), last_at = greatest(c.last_at, at)
        WHERE c.agent = in_agent AND c.channel_id = in_channel;
END $$;
