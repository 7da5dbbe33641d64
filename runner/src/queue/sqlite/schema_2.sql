-- What version 2 adds.

-- What a job has last said of its progress, and under which lease.
CREATE TABLE progress (
  record  INTEGER PRIMARY KEY,
  attempt INTEGER NOT NULL,
  session TEXT NOT NULL,
  token   INTEGER NOT NULL,
  at_us   INTEGER NOT NULL,
  percent INTEGER NOT NULL,
  message TEXT NOT NULL
) STRICT;

-- Buckets of state that hold anything, and what they hold: entries, and bytes of keys and values.
CREATE TABLE buckets (
  ns      INTEGER NOT NULL,
  bucket  TEXT NOT NULL,
  entries INTEGER NOT NULL,
  bytes   INTEGER NOT NULL,
  PRIMARY KEY (ns, bucket)
) STRICT, WITHOUT ROWID;

-- Their entries. Versions are numbers of the sequence, so that an entry that was deleted and made again never has an old one.
CREATE TABLE state (
  ns      INTEGER NOT NULL,
  bucket  TEXT NOT NULL,
  key     TEXT NOT NULL,
  value   BLOB NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (ns, bucket, key)
) STRICT, WITHOUT ROWID;
