-- The index of words is derived: stores/word_index makes its tables, and makes them anew when its rule changes.
DROP TABLE session_search;
DELETE FROM store_facts WHERE name = 'search_indexed_to';
