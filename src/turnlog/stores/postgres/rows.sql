-- The functions that write a session's row, made from the row's fields: `row_functions` puts lists of columns in place
-- of @columns and the like, the fold in place of @fold, and a digest of the result in place of @n. Servers of two versions
-- may run at once, so a function in use is never changed, and another one has another name.

ALTER TABLE turnlog.sessions @added;
@indexes
CREATE INDEX IF NOT EXISTS sessions_fold_@fold ON turnlog.sessions (session_id) WHERE fold < @fold;

-- Whether there are rows of an older version. A function, because its plan is kept: each list asks it.
CREATE FUNCTION turnlog.has_older_@n() RETURNS boolean STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM turnlog.sessions s WHERE s.fold < @fold);
END $$;

-- Appends to many sessions. A group is what one session gets: it is written if the log still ends where the caller saw
-- it end and the lease, if one is needed, is still the caller's. The answers:
--   written   also if an earlier call with the same token had written it and its answer was lost
--   overtaken the log ends elsewhere; session_no, last_seq and the row as they are now, NULL if there is no session
--   fenced    somebody else has had the lease since
--   busy      the group asked for the lease as well (lease, holder, lasting_s), and somebody has it: told_row says who
-- A group that asks for the lease gets its epoch if the group is written. It gets none if an earlier call had written it
-- and somebody else has taken the lease since.
CREATE FUNCTION turnlog.append_@n(groups jsonb, lines text[], roles text[], times text[], durable boolean)
RETURNS TABLE (told_id text, verdict text, told_no bigint, told_last bigint, told_row text, told_epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
    g record;
    there record;
    taken record;
    seen boolean;
BEGIN
    PERFORM turnlog.begin_1(durable);
    FOR g IN
        SELECT * FROM jsonb_to_recordset(groups) AS x (
            id text, no bigint, last bigint, token bigint, epoch bigint, lease bigint, holder text,
            lasting_s double precision, start int, count int, haystack text, grams jsonb, facts jsonb, @typed)
    LOOP
        SELECT s.session_no, s.last_seq, s.meta_json INTO there
            FROM turnlog.sessions s WHERE s.session_id = g.id FOR NO KEY UPDATE;
        seen := FOUND;
        IF NOT seen AND g.last = 0 THEN
            -- It ends at 0 until the entries are there.
            INSERT INTO turnlog.sessions (@columns) VALUES (@empty) ON CONFLICT (session_id) DO NOTHING;
            SELECT s.session_no, s.last_seq, s.meta_json INTO there
                FROM turnlog.sessions s WHERE s.session_id = g.id FOR NO KEY UPDATE;
            seen := FOUND;
        END IF;
        told_id := g.id;
        told_no := there.session_no;
        told_last := there.last_seq;
        told_row := NULL;
        told_epoch := NULL;
        IF NOT seen OR there.last_seq <> g.last OR (g.last > 0 AND there.session_no <> g.no) THEN
            IF EXISTS (SELECT FROM turnlog.session_messages m
                       WHERE m.session_id = g.id AND m.seq = g.last + 1 AND m.token = g.token) THEN
                verdict := 'written';
                IF g.lease IS NOT NULL THEN
                    SELECT l.got INTO told_epoch
                        FROM turnlog.lease_1(g.id, g.lease, g.holder, make_interval(secs => g.lasting_s)) l;
                END IF;
            ELSE
                verdict := 'overtaken';
                told_row := there.meta_json;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF g.lease IS NOT NULL THEN
            SELECT l.got, l.told_holder INTO taken
                FROM turnlog.lease_1(g.id, g.lease, g.holder, make_interval(secs => g.lasting_s)) l;
            IF taken.got IS NULL THEN
                IF g.last = 0 THEN
                    DELETE FROM turnlog.sessions s WHERE s.session_id = g.id AND s.last_seq = 0;
                END IF;
                verdict := 'busy';
                told_row := taken.told_holder;
                RETURN NEXT;
                CONTINUE;
            END IF;
            told_epoch := taken.got;
        ELSIF g.epoch IS NOT NULL THEN
            -- Locked until the commit: whoever takes the lease over waits for it, and then reads what was written.
            -- KEY SHARE does not stand in the way of heartbeats, which renew many leases at once.
            PERFORM FROM turnlog.leases l WHERE l.session_id = g.id AND l.epoch = g.epoch FOR KEY SHARE;
            IF NOT FOUND THEN
                IF g.last = 0 THEN
                    DELETE FROM turnlog.sessions s WHERE s.session_id = g.id AND s.last_seq = 0;
                END IF;
                verdict := 'fenced';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        UPDATE turnlog.sessions s SET @changes WHERE s.session_id = g.id;
        INSERT INTO turnlog.session_messages (session_id, seq, role, created_at, token, meta_json)
            SELECT g.id, g.last + e.n, nullif(e.role, ''), e.time, g.token, e.line
            FROM unnest(lines[g.start + 1 : g.start + g.count], roles[g.start + 1 : g.start + g.count],
                        times[g.start + 1 : g.start + g.count]) WITH ORDINALITY AS e (line, role, time, n);
        IF g.haystack IS NOT NULL THEN
            INSERT INTO turnlog.session_words AS w (session_id, haystack, grams)
                VALUES (g.id, g.haystack, array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(g.grams))))
                ON CONFLICT (session_id) DO UPDATE SET haystack = excluded.haystack, grams = excluded.grams;
        END IF;
        IF g.facts IS NOT NULL THEN
            PERFORM turnlog.index_facts_1(g.id, g.facts);
        END IF;
        verdict := 'written';
        told_last := g.last + g.count;
        RETURN NEXT;
    END LOOP;
END $$;

-- Puts a row made anew from the whole log in place, if the log still ends there. search_anew: what search finds is made
-- anew as well.
CREATE FUNCTION turnlog.refold_@n(told jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    PERFORM turnlog.begin_1(true);
    SELECT * INTO g FROM jsonb_to_record(told)
        AS x (id text, last bigint, search_anew boolean, haystack text, grams jsonb, facts jsonb, @typed);
    PERFORM FROM turnlog.sessions s WHERE s.session_id = g.id FOR UPDATE;
    IF (SELECT max(m.seq) FROM turnlog.session_messages m WHERE m.session_id = g.id) IS DISTINCT FROM g.last THEN
        RETURN false;
    END IF;
    IF g.search_anew THEN
        DELETE FROM turnlog.session_search t WHERE t.session_id = g.id;
    END IF;
    INSERT INTO turnlog.session_words AS w (session_id, haystack, grams)
        VALUES (g.id, g.haystack, array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(g.grams))))
        ON CONFLICT (session_id) DO UPDATE SET haystack = excluded.haystack, grams = excluded.grams;
    INSERT INTO turnlog.sessions AS s (@columns)
        VALUES (@values)
        ON CONFLICT (session_id) DO UPDATE
            SET @every, indexed_to = CASE WHEN g.search_anew THEN 0 ELSE s.indexed_to END;
    DELETE FROM turnlog.session_facts f WHERE f.session_id = g.id;
    IF g.facts IS NOT NULL THEN
        PERFORM turnlog.index_facts_1(g.id, g.facts);
    END IF;
    RETURN true;
END $$;

-- Puts entries without words in the place of others, appends what says so, and puts the row made anew from that log in
-- place. Answers as the append does, or gone. `anew`: what search finds of the session is made anew; the mark becomes one
-- that no server had, so that none adds words that it read before.
CREATE FUNCTION turnlog.erase_@n(told jsonb, seqs bigint[], lines text[], added text[], times text[], durable boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    g record;
    there record;
BEGIN
    PERFORM turnlog.begin_1(durable);
    SELECT * INTO g FROM jsonb_to_record(told) AS x (
        id text, no bigint, last bigint, token bigint, epoch bigint, anew boolean, haystack text, grams jsonb,
        facts jsonb, @typed);
    SELECT s.session_no, s.last_seq INTO there FROM turnlog.sessions s WHERE s.session_id = g.id FOR UPDATE;
    IF NOT FOUND OR there.session_no <> g.no THEN
        RETURN 'gone';
    ELSIF there.last_seq <> g.last THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM turnlog.session_messages m
            WHERE m.session_id = g.id AND m.seq = g.last + 1 AND m.token = g.token) THEN 'written' ELSE 'overtaken' END;
    END IF;
    IF g.epoch IS NOT NULL THEN
        PERFORM FROM turnlog.leases l WHERE l.session_id = g.id AND l.epoch = g.epoch FOR KEY SHARE;
        IF NOT FOUND THEN
            RETURN 'fenced';
        END IF;
    END IF;
    UPDATE turnlog.session_messages m SET meta_json = e.line FROM unnest(seqs, lines) AS e (seq, line)
        WHERE m.session_id = g.id AND m.seq = e.seq;
    INSERT INTO turnlog.session_messages (session_id, seq, role, created_at, token, meta_json)
        SELECT g.id, g.last + e.n, NULL, e.time, g.token, e.line
        FROM unnest(added, times) WITH ORDINALITY AS e (line, time, n);
    DELETE FROM turnlog.session_search t WHERE t.session_id = g.id AND t.seq = ANY(seqs);
    DELETE FROM turnlog.session_facts f WHERE f.session_id = g.id AND f.seq = ANY(seqs);
    INSERT INTO turnlog.session_words AS w (session_id, haystack, grams)
        VALUES (g.id, g.haystack, array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(g.grams))))
        ON CONFLICT (session_id) DO UPDATE SET haystack = excluded.haystack, grams = excluded.grams;
    IF g.facts IS NOT NULL THEN
        PERFORM turnlog.index_facts_1(g.id, g.facts);
    END IF;
    UPDATE turnlog.sessions s
        SET @changes, indexed_to = CASE WHEN g.anew THEN least(s.indexed_to, 0) - 1 ELSE s.indexed_to END
        WHERE s.session_id = g.id;
    RETURN 'written';
END $$;
