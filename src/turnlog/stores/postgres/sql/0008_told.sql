-- Servers keep facts of these spaces in memory and have to hear of every change, whoever makes it: another version, or a
-- person. They change seldom, so the lock that a notification takes at the commit does not matter here.
CREATE FUNCTION turnlog.tell_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('turnlog_' || TG_TABLE_SCHEMA, 'ledger:');
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_put AFTER INSERT OR UPDATE ON turnlog.ledger FOR EACH ROW
    WHEN (NEW.space IN ('tokens', 'cookies')) EXECUTE FUNCTION turnlog.tell_ledger();
CREATE TRIGGER ledger_gone AFTER DELETE ON turnlog.ledger FOR EACH ROW
    WHEN (OLD.space IN ('tokens', 'cookies')) EXECUTE FUNCTION turnlog.tell_ledger();
CREATE TRIGGER ledger_emptied AFTER TRUNCATE ON turnlog.ledger FOR EACH STATEMENT EXECUTE FUNCTION turnlog.tell_ledger();
