-- The other two orders of lists.
CREATE INDEX sessions_by_messages ON turnlog.sessions (message_count, updated_at, session_id);
CREATE INDEX sessions_by_tokens ON turnlog.sessions (token_estimate, updated_at, session_id);
