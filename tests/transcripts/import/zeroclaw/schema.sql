-- The tables of ZeroClaw's sessions.db (user_version 4), with a compaction and rows that nothing forbids there.
CREATE TABLE session_index (session_key TEXT PRIMARY KEY, active_session_id TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, session_key TEXT NOT NULL, status TEXT NOT NULL, title TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, meta_json TEXT);
CREATE TABLE session_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL, created_at TEXT NOT NULL, meta_json TEXT);
CREATE TABLE session_state (session_id TEXT NOT NULL, key TEXT NOT NULL, value_json TEXT NOT NULL, updated_at TEXT NOT NULL, PRIMARY KEY (session_id, key));
PRAGMA user_version = 4;
INSERT INTO sessions VALUES ('9b2f0000-0000-4000-8000-000000000001', 'direct:telegram:42', 'active', 'Boats', '2026-02-19T10:00:00+00:00', '2026-02-19T10:05:00+00:00', NULL);
INSERT INTO sessions VALUES ('9b2f0000-0000-4000-8000-000000000002', 'group:telegram:-7', 'inactive', NULL, '2026-02-19T11:00:00+00:00', '2026-02-19T11:00:00+00:00', '{"a": 1}');
INSERT INTO session_index VALUES ('direct:telegram:42', '9b2f0000-0000-4000-8000-000000000001', '2026-02-19T10:05:00+00:00');
INSERT INTO session_index VALUES ('direct:telegram:43', 'gone', '2026-02-19T10:05:00+00:00');
INSERT INTO session_messages (session_id, role, content, created_at, meta_json) VALUES
 ('9b2f0000-0000-4000-8000-000000000001', 'user', 'I sail a small boat.', '2026-02-19T10:00:01+00:00', NULL),
 ('9b2f0000-0000-4000-8000-000000000001', 'assistant', 'Nice.', '2026-02-19T10:00:02+00:00', '{"tokens": 3}'),
 ('9b2f0000-0000-4000-8000-000000000001', 'user', 'Where to?', '2026-02-19T10:01:00+00:00', NULL),
 ('9b2f0000-0000-4000-8000-000000000002', 'user', 'In a group.', '2026-02-19T11:00:00+00:00', NULL),
 ('9b2f0000-0000-4000-8000-000000000001', 'assistant', 'To Kiel.', '2026-02-19T10:01:01+00:00', NULL),
 ('9b2f0000-0000-4000-8000-000000000001', 'tool', 'wind: 4', '2026-02-19T10:01:02+00:00', NULL),
 ('9b2f0000-0000-4000-8000-000000000001', 'system', 'event', '2026-02-19T10:01:03+00:00', NULL),
 ('lost0000-0000-4000-8000-000000000003', 'user', 'Nobody lists me.', '2026-02-19T12:00:00+00:00', NULL);
INSERT INTO session_state VALUES ('9b2f0000-0000-4000-8000-000000000001', 'compaction_after_message_id', '2', '2026-02-19T10:00:03+00:00');
INSERT INTO session_state VALUES ('9b2f0000-0000-4000-8000-000000000001', 'compaction_summary', '"The user sails."', '2026-02-19T10:00:03+00:00');
