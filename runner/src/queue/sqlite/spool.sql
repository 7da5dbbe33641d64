-- The spool: jobs that were accepted while their store did not answer, in the order of their acceptance.

CREATE TABLE jobs (
  place        INTEGER PRIMARY KEY AUTOINCREMENT,
  -- Which store and namespace it is for.
  store        TEXT NOT NULL,
  queue        TEXT NOT NULL,
  kind         TEXT NOT NULL,
  id           TEXT NOT NULL,
  priority     TEXT NOT NULL,
  -- One of the two.
  delay_ms     INTEGER,
  at_ms        INTEGER,
  max_attempts INTEGER,
  timeout_ms   INTEGER,
  -- A JSON array of pairs; NULL for none.
  meta         TEXT,
  traceparent  TEXT,
  source       TEXT NOT NULL,
  on_conflict  TEXT NOT NULL,
  -- When it came here: by the time since a boot, and by the wall clock. And how long before that it was accepted.
  boot         TEXT NOT NULL,
  boot_us      INTEGER NOT NULL,
  wall_ms      INTEGER NOT NULL,
  age_ms       INTEGER NOT NULL,
  -- Whether the store may have it already.
  unsure       INTEGER NOT NULL,
  -- Why it is set aside; NULL for one that waits.
  aside        TEXT,
  -- What it counts for.
  bytes        INTEGER NOT NULL,
  payload      BLOB NOT NULL
) STRICT;

CREATE INDEX waiting ON jobs (store, place) WHERE aside IS NULL;
CREATE INDEX named ON jobs (id);

-- What all jobs count for together.
CREATE TABLE totals (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  jobs  INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;

INSERT INTO totals VALUES (1, 0, 0);

CREATE TRIGGER job_in AFTER INSERT ON jobs BEGIN
  UPDATE totals SET jobs = jobs + 1, bytes = bytes + new.bytes;
END;

CREATE TRIGGER job_out AFTER DELETE ON jobs BEGIN
  UPDATE totals SET jobs = jobs - 1, bytes = bytes - old.bytes;
END;

-- Stores that did not answer: how often in a row, and when it was found out last.
CREATE TABLE failures (
  store   TEXT PRIMARY KEY,
  count   INTEGER NOT NULL,
  boot    TEXT NOT NULL,
  boot_us INTEGER NOT NULL
) STRICT;
