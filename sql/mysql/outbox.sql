-- What outboxd needs on a MySQL server: the outbox table, and an account that may do little. Safe to run twice. Run it
-- as an administrator, with the application's database as the default one:
--
--     mysql --user=root shop < outbox.sql
--
-- Put a password in the place of CHANGE ME, and the relay's host in the place of %.

-- The columns by their default names; [outbox.columns] takes others. What the columns are for:
--   id             unique for each event: header id, by which consumers tell repeats
--   aggregatetype  chooses the topic: outbox.event.<aggregatetype>
--   aggregateid    the record's key: events of one aggregate stay in order
--   type           what happened; a header, if record.headers says so
--   payload        the record's value; NULL makes a record without a value
CREATE TABLE IF NOT EXISTS outbox (
    id            CHAR(36) NOT NULL DEFAULT (UUID()) PRIMARY KEY,
    aggregatetype VARCHAR(255) NOT NULL,
    aggregateid   VARCHAR(255) NOT NULL,
    type          VARCHAR(255) NOT NULL,
    payload       JSON
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- The log is one for all databases, so these rights are too. No write access anywhere.
CREATE USER IF NOT EXISTS 'outboxd'@'%' IDENTIFIED BY 'CHANGE ME';
GRANT REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.* TO 'outboxd'@'%';

-- For the first start, which publishes the rows that stand in the table, and to look at its columns.
GRANT SELECT ON outbox TO 'outboxd'@'%';

-- Whole rows, with the names of their columns. Sessions that are open keep what they have.
SET PERSIST binlog_row_image = 'FULL';
SET PERSIST binlog_row_metadata = 'FULL';
-- The server should have gtid_mode = ON and enforce_gtid_consistency = ON, so that a failover needs no hand; log_bin and
-- binlog_format = ROW are MySQL's defaults.
