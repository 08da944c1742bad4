-- The outbox table that the benchmark uses on MySQL and MariaDB.
create table outbox (
  id char(36) primary key,
  aggregatetype varchar(255) not null,
  aggregateid varchar(255) not null,
  type varchar(255) not null,
  payload json
) character set utf8mb4
