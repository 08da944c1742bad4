-- For docker-compose.yml alone: a password that everybody knows.
ALTER ROLE outboxd PASSWORD 'outboxd';
