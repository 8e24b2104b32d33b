-- Sessions with a running turn or waiting messages: a start asks for them, and so does a list of what runs. A turn enters
-- its row and takes it out again, always on the same few pages.
CREATE INDEX sessions_unfinished ON sessions (updated_at, session_id) WHERE unfinished;
