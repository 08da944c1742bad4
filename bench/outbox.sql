-- The outbox table and the publication that the benchmark uses. The publication comes first: a slot
-- sees only publications that are older than itself.
create table outbox (
  id uuid primary key,
  aggregatetype varchar(255) not null,
  aggregateid varchar(255) not null,
  type varchar(255) not null,
  payload jsonb
);
create publication pub_outbox for table outbox with (publish = 'insert');
