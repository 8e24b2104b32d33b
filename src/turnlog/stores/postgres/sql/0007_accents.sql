-- Words are indexed without their accents. The index is derived: it is filled anew.
TRUNCATE turnlog.session_search;
UPDATE turnlog.sessions SET indexed_to = 0 WHERE indexed_to > 0;
