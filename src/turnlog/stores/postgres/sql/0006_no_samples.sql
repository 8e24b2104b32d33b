-- The planner keeps samples of columns in its own tables, where erased words would stay. It needs none of these.
ALTER TABLE turnlog.session_messages ALTER COLUMN meta_json SET STATISTICS 0;
ALTER TABLE turnlog.sessions ALTER COLUMN meta_json SET STATISTICS 0, ALTER COLUMN title SET STATISTICS 0;
ALTER TABLE turnlog.session_words ALTER COLUMN haystack SET STATISTICS 0, ALTER COLUMN grams SET STATISTICS 0;
ALTER TABLE turnlog.session_search ALTER COLUMN words SET STATISTICS 0;
