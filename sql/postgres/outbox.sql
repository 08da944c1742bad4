-- What outboxd needs in a database: the outbox table, a role that may do little, and a publication.
-- Safe to run twice. Run it in the application's database, as a superuser or as a role that may create roles with
-- REPLICATION (PostgreSQL 16 and later):
--
--     psql -v ON_ERROR_STOP=1 -f outbox.sql postgres://postgres@localhost/shop
--
-- Afterwards give the role a password: \password outboxd
-- The server needs wal_level = logical (a restart), and a free place in max_replication_slots and max_wal_senders.
-- The replication slot is not made here: it has to be younger than the publication, and outboxd makes it by itself.

BEGIN;

-- The columns by their default names; [outbox.columns] takes others. What the columns are for:
--   id             unique for each event: header id, by which consumers tell repeats
--   aggregatetype  chooses the topic: outbox.event.<aggregatetype>
--   aggregateid    the record's key: events of one aggregate stay in order
--   type           what happened; a header, if record.headers says so
--   payload        the record's value; NULL makes a record without a value
CREATE TABLE IF NOT EXISTS public.outbox (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype text NOT NULL,
    aggregateid   text NOT NULL,
    type          text NOT NULL,
    payload       jsonb
);

-- LOGIN and REPLICATION are all that reading the log takes. No write access anywhere.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'outboxd') THEN
        CREATE ROLE outboxd LOGIN REPLICATION;
    ELSE
        ALTER ROLE outboxd LOGIN REPLICATION;
    END IF;
    EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO outboxd', pg_catalog.current_database());
END
$$;

-- For the first start, which publishes the rows that stand in the table. Later nothing is read from it: take the right
-- away then if you like, or now if the relay is to begin with source.postgres.start = "now".
GRANT USAGE ON SCHEMA public TO outboxd;
GRANT SELECT ON public.outbox TO outboxd;

-- Only INSERTs of only this table travel: deleting or marking rows costs the relay nothing. With
-- publish_via_partition_root a partitioned outbox is one table to it. The name is outboxd_<name of the instance>.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'outboxd_outbox') THEN
        CREATE PUBLICATION outboxd_outbox FOR TABLE public.outbox
            WITH (publish = 'insert', publish_via_partition_root = true);
    ELSIF NOT EXISTS (
        SELECT FROM pg_catalog.pg_publication_rel
        JOIN pg_catalog.pg_publication ON pg_publication.oid = prpubid
        WHERE pubname = 'outboxd_outbox' AND prrelid = 'public.outbox'::regclass
    ) THEN
        ALTER PUBLICATION outboxd_outbox ADD TABLE public.outbox;
    END IF;
    -- Only where that changes something: a relay that runs stops for each alteration, since it may have hidden rows.
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_publication
        WHERE pubname = 'outboxd_outbox' AND pubinsert AND NOT (pubupdate OR pubdelete OR pubtruncate) AND pubviaroot
    ) THEN
        ALTER PUBLICATION outboxd_outbox SET (publish = 'insert', publish_via_partition_root = true);
    END IF;
END
$$;

COMMIT;
