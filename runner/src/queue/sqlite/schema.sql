-- The tables of version 1; schema_2.sql has what came after. Times are milliseconds since 1970 on the store's clock unless a name says otherwise.

-- now = time since the boot + offset, for all programs of one boot: a step of the wall clock changes nothing.
CREATE TABLE clock (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  boot      TEXT NOT NULL,
  offset_us INTEGER NOT NULL
) STRICT;

-- The last record id or place in the order that was given out.
CREATE TABLE sequence (
  one  INTEGER PRIMARY KEY CHECK (one = 1),
  last INTEGER NOT NULL
) STRICT;
INSERT INTO sequence VALUES (1, 0);

-- identity: the name of the store and namespace, made at its first use. lookalikes: 1 once somebody gave an id that looks like one that the store makes.
-- id_bytes: what the remembered ids weigh. stale: late settlements that were refused.
CREATE TABLE namespaces (
  ns         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  identity   TEXT,
  lookalikes INTEGER NOT NULL DEFAULT 0,
  id_bytes   INTEGER NOT NULL DEFAULT 0,
  stale      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The three totals count for ever.
CREATE TABLE queues (
  queue     INTEGER PRIMARY KEY,
  ns        INTEGER NOT NULL,
  name      TEXT NOT NULL,
  paused    INTEGER NOT NULL DEFAULT 0,
  enqueued  INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed    INTEGER NOT NULL DEFAULT 0,
  UNIQUE (ns, name)
) STRICT;

-- A queue and kind.
CREATE TABLE lanes (
  lane  INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  UNIQUE (queue, kind)
) STRICT;

-- What was asked for, written once. given: 1 when the caller chose the id.
CREATE TABLE jobs (
  record       INTEGER PRIMARY KEY,
  lane         INTEGER NOT NULL,
  id           TEXT NOT NULL,
  given        INTEGER NOT NULL,
  priority     INTEGER NOT NULL,
  enqueued_ms  INTEGER NOT NULL,
  due_ms       INTEGER NOT NULL,
  max_attempts INTEGER,
  timeout_ms   INTEGER,
  meta         TEXT,
  traceparent  TEXT,
  source       TEXT NOT NULL,
  payload      BLOB NOT NULL
) STRICT;

-- Jobs that wait, in the order in which they are claimed. part: 1 high, 2 normal, 3 low, 4 suspects, which have two
-- recorded crashes or more. place: where the job is among those of its millisecond.
CREATE TABLE waiting (
  lane    INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  due_ms  INTEGER NOT NULL,
  place   INTEGER NOT NULL,
  record  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  PRIMARY KEY (lane, part, due_ms, place)
) STRICT, WITHOUT ROWID;

-- Jobs that a session has. recall: c cancel it, r give it back if it has not started.
CREATE TABLE leases (
  record       INTEGER PRIMARY KEY,
  ns           INTEGER NOT NULL,
  lane         INTEGER NOT NULL,
  session      TEXT NOT NULL,
  token        INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  crashes      INTEGER NOT NULL,
  due_ms       INTEGER NOT NULL,
  place        INTEGER NOT NULL,
  claimed_ms   INTEGER NOT NULL,
  recall       TEXT
) STRICT;

-- What has happened to a job, absent until the first settle, reclaim, cancel or reschedule. state: w waiting or
-- leased, c completed, x cancelled, d dead. ended_ms and what follows it are there once the job has finished.
-- session and token are those of the last settled lease. history: netstrings, see queue/life.rs.
CREATE TABLE past (
  record       INTEGER PRIMARY KEY,
  state        TEXT NOT NULL,
  attempt      INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  crashes      INTEGER NOT NULL,
  due_ms       INTEGER NOT NULL,
  place        INTEGER NOT NULL,
  session      TEXT,
  token        INTEGER,
  queue        INTEGER,
  ended_ms     INTEGER,
  bytes        INTEGER,
  expire_ms    INTEGER,
  forget_ms    INTEGER,
  result       BLOB,
  events       INTEGER NOT NULL,
  history      BLOB NOT NULL
) STRICT;
CREATE INDEX finished ON past (queue, state, ended_ms, record) WHERE queue IS NOT NULL;
CREATE INDEX expiring ON past (queue, expire_ms) WHERE expire_ms IS NOT NULL;

-- How many finished jobs of a state a queue keeps, and what they weigh.
CREATE TABLE kept (
  queue INTEGER NOT NULL,
  state TEXT NOT NULL,
  jobs  INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;

-- Ids that callers chose: of a record, or remembered (state, due_ms, forget_ms) after it is gone.
CREATE TABLE ids (
  queue     INTEGER NOT NULL,
  id        TEXT NOT NULL,
  record    INTEGER,
  ns        INTEGER NOT NULL,
  state     TEXT,
  due_ms    INTEGER,
  forget_ms INTEGER,
  PRIMARY KEY (queue, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX remembered ON ids (ns, forget_ms) WHERE record IS NULL;

CREATE TABLE logs (
  record  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (record, attempt)
) STRICT, WITHOUT ROWID;

-- beat only has to differ from the one before.
CREATE TABLE sessions (
  ns      INTEGER NOT NULL,
  session TEXT NOT NULL,
  beat    INTEGER NOT NULL,
  beat_ms INTEGER NOT NULL,
  runner  TEXT NOT NULL,
  info    TEXT NOT NULL,
  PRIMARY KEY (ns, session)
) STRICT, WITHOUT ROWID;

-- Entries of `waiting` that are no jobs', kept for people to look at. what: orphan or dirt.
CREATE TABLE aside (
  aside   INTEGER PRIMARY KEY,
  ns      INTEGER NOT NULL,
  what    TEXT NOT NULL,
  at_ms   INTEGER NOT NULL,
  lane    INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  due_ms  INTEGER NOT NULL,
  place   INTEGER NOT NULL,
  record  INTEGER NOT NULL
) STRICT;

-- What was copied from another store: numbers of the source itself (what is empty; see queue/copy.rs), and of each of its queues,
-- of which the totals are added once.
CREATE TABLE copies (
  ns      INTEGER NOT NULL,
  source  TEXT NOT NULL,
  what    TEXT NOT NULL,
  numbers TEXT NOT NULL,
  PRIMARY KEY (ns, source, what)
) STRICT, WITHOUT ROWID;

-- What the doctor has set aside, kept for people to look at: rows of other tables as JSON, bytes in hex.
CREATE TABLE quarantine (
  quarantine INTEGER PRIMARY KEY,
  ns         INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL,
  was_in     TEXT NOT NULL,
  content    TEXT NOT NULL
) STRICT;

-- Signals to whoever listens, the last few: a lane with a due time, or a session that is recalled.
CREATE TABLE wakes (
  wake    INTEGER PRIMARY KEY,
  ns      INTEGER NOT NULL,
  lane    INTEGER,
  due_ms  INTEGER,
  session TEXT
) STRICT;
