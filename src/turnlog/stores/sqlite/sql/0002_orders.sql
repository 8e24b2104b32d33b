-- Lists filtered by member, channel and status, in each of their orders, are read off one of these two without a look at
-- the rows themselves. Only they follow every append, so that it costs little; the others change when a session does.
DROP INDEX sessions_newest;
DROP INDEX sessions_by_agent;
DROP INDEX sessions_aside;
CREATE INDEX sessions_newest ON sessions (
    updated_at, session_id, agent_id, channel, status, message_count, token_estimate
);
CREATE INDEX sessions_by_agent ON sessions (
    agent_id, updated_at, session_id, channel, status, message_count, token_estimate
);

-- To count.
DROP INDEX sessions_by_status;
CREATE INDEX sessions_by_status ON sessions (agent_id, status, channel);
CREATE INDEX sessions_by_channel ON sessions (status, channel);

-- To look through for a word.
CREATE INDEX sessions_words ON sessions (haystack, agent_id, channel, status);
