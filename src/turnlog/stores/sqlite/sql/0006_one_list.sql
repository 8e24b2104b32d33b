-- One index follows every append instead of two. A list of one agent's sessions walks sessions_newest, or collects its
-- rows from sessions_by_status if they are few (statements.find).
DROP INDEX sessions_by_agent;
