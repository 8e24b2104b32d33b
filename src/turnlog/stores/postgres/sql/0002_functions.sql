-- Each change is one call and so one transaction: a client that stops in the middle holds no lock and leaves nothing
-- half done. Names end in a number: servers of two versions may run at once, so a function in use is never changed;
-- the next schema adds a new one. The functions that write a session's row are in rows.sql, made from its columns.

-- What must hold for every change: it waits for a lock, but not for ever, and it is on disk before it is answered.
CREATE FUNCTION turnlog.begin_1(durable boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    IF NOT durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION turnlog.delete_1(gone text, durable boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM turnlog.begin_1(durable);
    DELETE FROM turnlog.sessions WHERE session_id = gone;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM turnlog.session_messages WHERE session_id = gone;
    DELETE FROM turnlog.session_search WHERE session_id = gone;
    DELETE FROM turnlog.session_words WHERE session_id = gone;
    RETURN true;
END $$;

-- Replaces old (NULL: absent) by new (NULL: deletes it), if old is what is there; says what was there. A call that is
-- repeated with the same token says what it said at first.
CREATE FUNCTION turnlog.ledger_1(
    in_space text, in_key text, old text, new text, ttl_ms bigint, at_ms bigint, in_token bigint, durable boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    there record;
    current text;
    now_ms bigint := coalesce(at_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
    PERFORM turnlog.begin_1(durable);
    INSERT INTO turnlog.ledger VALUES (in_space, in_key, NULL, now_ms, 0) ON CONFLICT DO NOTHING;
    SELECT l.value_json, l.expires_at, l.token INTO there
        FROM turnlog.ledger l WHERE l.space = in_space AND l.key = in_key FOR UPDATE;
    IF there.token = in_token THEN
        RETURN old;
    END IF;
    current := CASE WHEN there.expires_at <= now_ms THEN NULL ELSE there.value_json END;
    IF current IS DISTINCT FROM old THEN
        RETURN current;
    END IF;
    -- What was deleted is kept for a minute, for the sake of its token.
    UPDATE turnlog.ledger l SET value_json = new, token = in_token,
        expires_at = now_ms + CASE WHEN new IS NULL THEN 60000 ELSE ttl_ms END
        WHERE l.space = in_space AND l.key = in_key;
    RETURN current;
END $$;

-- The epoch, or NULL and who has it. Judged by this server's clock alone.
CREATE FUNCTION turnlog.lease_1(wanted text, in_token bigint, in_holder text, lasting interval)
RETURNS TABLE (got bigint, told_holder text) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    PERFORM set_config('lock_timeout', '10s', true);
    -- Waits for appends under way, which an update alone would not.
    PERFORM FROM turnlog.leases l WHERE l.session_id = wanted AND l.expires_at <= moment FOR UPDATE;
    INSERT INTO turnlog.leases AS l (session_id, epoch, token, holder, expires_at)
        VALUES (wanted, nextval('turnlog.lease_epochs'), in_token, in_holder, clock_timestamp() + lasting)
        ON CONFLICT (session_id) DO UPDATE
            SET epoch = excluded.epoch, token = excluded.token, holder = excluded.holder,
                expires_at = clock_timestamp() + lasting
            WHERE l.expires_at <= moment OR l.token = in_token
        RETURNING l.epoch INTO got;
    IF got IS NULL THEN
        SELECT l.holder INTO told_holder FROM turnlog.leases l WHERE l.session_id = wanted;
    END IF;
    RETURN NEXT;
END $$;

-- What follows is for people and other programs; the store itself does not use it.

-- An entry as json, without the NULs that PostgreSQL's text cannot hold.
CREATE FUNCTION turnlog.entry(line text) RETURNS json IMMUTABLE LANGUAGE sql AS $$
    SELECT regexp_replace(line, '(?<!\\)((\\\\)*)\\u0000', '\1', 'g')::json
$$;

-- The words of a row: SELECT m.*, turnlog.content(m) FROM turnlog.session_messages m
CREATE FUNCTION turnlog.content(m turnlog.session_messages) RETURNS text STABLE LANGUAGE plpgsql AS $$
DECLARE
    entry json := turnlog.entry(m.meta_json);
BEGIN
    IF entry ->> 'type' = 'compaction' THEN
        RETURN CASE m.role WHEN 'assistant' THEN E'[Session Compaction Summary]\n' ELSE '' END || (entry ->> 'summary');
    ELSIF json_typeof(entry -> 'content') = 'array' AND json_array_length(entry -> 'content') = 1 THEN
        RETURN coalesce(entry #>> '{content,0,text}', entry ->> 'content');
    END IF;
    RETURN entry ->> 'content';
EXCEPTION WHEN OTHERS THEN
    -- Half a character, or a damaged line: as it is.
    RETURN m.meta_json;
END $$;

CREATE VIEW turnlog.session_index AS
    SELECT DISTINCT ON (session_key) session_key, session_id AS active_session_id, updated_at
    FROM turnlog.sessions WHERE selected_n > 0
    ORDER BY session_key, selected_n DESC, updated_at DESC;

CREATE VIEW turnlog.session_state AS
    SELECT s.session_id, 'compaction_after_message_id' AS key, (
        SELECT max(m.id)::text FROM turnlog.session_messages m
        WHERE m.session_id = s.session_id AND m.seq < s.boundary AND m.role IS NOT NULL
            AND m.meta_json NOT LIKE '{"type":"compaction"%'
    ) AS value_json
    FROM turnlog.sessions s WHERE s.compaction_seq > 0
    UNION ALL
    SELECT m.session_id, 'compaction_summary', (turnlog.entry(m.meta_json) -> 'summary')::text
    FROM turnlog.sessions s
    JOIN turnlog.session_messages m ON m.session_id = s.session_id AND m.seq = s.compaction_seq
    WHERE s.compaction_seq > 0;
