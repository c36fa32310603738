-- What was found, reported and computed, and the store's own bookkeeping.
-- Units are in the names (_s seconds, _ms, _w watts, _j joules, _tokens). Missing is NULL, never 0. A column a field of
-- backend/records.py, in its order. Never edit a released migration: add the next number.

CREATE TABLE finding (
  sweep VARCHAR,
  run_id VARCHAR,
  cell_id VARCHAR,
  code VARCHAR,
  severity VARCHAR NOT NULL,
  figure DOUBLE,
  unit VARCHAR NOT NULL,
  message VARCHAR NOT NULL,
  action VARCHAR NOT NULL,
  PRIMARY KEY (sweep, run_id, cell_id, code)
);
COMMENT ON TABLE finding IS 'A check that has something to say.';
COMMENT ON COLUMN finding.sweep IS 'Sweep';
COMMENT ON COLUMN finding.run_id IS 'Run; empty: about the sweep';
COMMENT ON COLUMN finding.cell_id IS 'Cell; empty: about the run or sweep';
COMMENT ON COLUMN finding.code IS 'Code of the check';
COMMENT ON COLUMN finding.severity IS 'info | warning | error';
COMMENT ON COLUMN finding.figure IS 'The figure that was checked; NULL: none';
COMMENT ON COLUMN finding.unit IS 'Its unit';
COMMENT ON COLUMN finding.message IS 'What was seen';
COMMENT ON COLUMN finding.action IS 'What to do';

CREATE TABLE reported_value (
  run_id VARCHAR,
  cell_id VARCHAR,
  quantity VARCHAR,
  value DOUBLE NOT NULL,
  unit VARCHAR NOT NULL,
  note VARCHAR NOT NULL,
  PRIMARY KEY (run_id, cell_id, quantity)
);
COMMENT ON TABLE reported_value IS 'A figure that another tool or a publication reports, where raw requests are absent. What was not reported has no row.';
COMMENT ON COLUMN reported_value.run_id IS 'Run';
COMMENT ON COLUMN reported_value.cell_id IS 'Cell';
COMMENT ON COLUMN reported_value.quantity IS 'Named like the columns of k_summary, or survival_<position>';
COMMENT ON COLUMN reported_value.value IS 'The figure';
COMMENT ON COLUMN reported_value.unit IS 'Its unit';
COMMENT ON COLUMN reported_value.note IS 'Where it is printed';

CREATE TABLE estimate (
  sweep VARCHAR,
  ordinal BIGINT,
  cell_id VARCHAR,
  quantity VARCHAR NOT NULL,
  k BIGINT,
  window_k INTEGER[],
  value DOUBLE,
  low DOUBLE,
  high DOUBLE,
  level DOUBLE,
  method VARCHAR NOT NULL,
  n BIGINT,
  unit VARCHAR NOT NULL,
  reason VARCHAR,
  code_version VARCHAR NOT NULL,
  PRIMARY KEY (sweep, ordinal)
);
COMMENT ON TABLE estimate IS 'A fitted or headline number with its interval, or the reason it has none. A row each, in the order they were computed.';
COMMENT ON COLUMN estimate.sweep IS 'Sweep';
COMMENT ON COLUMN estimate.ordinal IS 'Order inside the sweep, from 0';
COMMENT ON COLUMN estimate.cell_id IS 'Cell; NULL: about the whole sweep';
COMMENT ON COLUMN estimate.quantity IS 'What is estimated, unit in the name';
COMMENT ON COLUMN estimate.k IS 'Draft depth K; NULL: the figure is not of one K';
COMMENT ON COLUMN estimate.window_k IS 'Depths in the fit; NULL: not a fit';
COMMENT ON COLUMN estimate.value IS 'The estimate; NULL: see reason';
COMMENT ON COLUMN estimate.low IS 'Lower bound; NULL: see reason';
COMMENT ON COLUMN estimate.high IS 'Upper bound; NULL: see reason';
COMMENT ON COLUMN estimate.level IS 'Confidence level of [low, high], 0.95 for 95 %';
COMMENT ON COLUMN estimate.method IS 'How it was computed';
COMMENT ON COLUMN estimate.n IS 'Independent units behind it (runs unless the method says otherwise)';
COMMENT ON COLUMN estimate.unit IS 'Unit';
COMMENT ON COLUMN estimate.reason IS 'Why value or interval is missing; NULL: both are there';
COMMENT ON COLUMN estimate.code_version IS 'Version of the code that computed it';

CREATE TABLE ledger (
  journal VARCHAR,
  sweep VARCHAR NOT NULL,
  size_bytes BIGINT NOT NULL,
  mtime_ns BIGINT NOT NULL,
  records BIGINT NOT NULL,
  ingested_unix_s DOUBLE NOT NULL,
  PRIMARY KEY (journal)
);
COMMENT ON TABLE ledger IS 'Journal files taken in, so that unchanged ones are skipped.';
COMMENT ON COLUMN ledger.journal IS '<root>/<sweep>/<file>; root: own, demo or published';
COMMENT ON COLUMN ledger.sweep IS 'Sweep';
COMMENT ON COLUMN ledger.size_bytes IS 'File size when it was read';
COMMENT ON COLUMN ledger.mtime_ns IS 'Modification time when it was read, nanoseconds since 1970';
COMMENT ON COLUMN ledger.records IS 'Lines taken in';
COMMENT ON COLUMN ledger.ingested_unix_s IS 'When, seconds since 1970';

CREATE TABLE snapshot (
  id VARCHAR,
  published_unix_s DOUBLE NOT NULL,
  schema_version BIGINT NOT NULL,
  code_version VARCHAR NOT NULL,
  PRIMARY KEY (id)
);
COMMENT ON TABLE snapshot IS 'One row: what this file is a snapshot of.';
COMMENT ON COLUMN snapshot.id IS 'Unique for every published snapshot';
COMMENT ON COLUMN snapshot.published_unix_s IS 'When it was published, seconds since 1970';
COMMENT ON COLUMN snapshot.schema_version IS 'Number of the last migration';
COMMENT ON COLUMN snapshot.code_version IS 'Version of the code that published it';
