-- What was sampled around the requests.
-- Units are in the names (_s seconds, _ms, _w watts, _j joules, _tokens). Missing is NULL, never 0. A column a field of
-- backend/records.py, in its order. Never edit a released migration: add the next number.

CREATE TABLE counter (
  run_id VARCHAR,
  cell_id VARCHAR,
  phase VARCHAR,
  span VARCHAR,
  name VARCHAR,
  labels VARCHAR,
  before DOUBLE,
  after DOUBLE NOT NULL,
  before_unix_s DOUBLE NOT NULL,
  after_unix_s DOUBLE NOT NULL,
  PRIMARY KEY (run_id, cell_id, phase, span, name, labels)
);
COMMENT ON TABLE counter IS 'A counter of the engine''s /metrics before and after a span. Engines are kept apart by label: sum over them.';
COMMENT ON COLUMN counter.run_id IS 'Run';
COMMENT ON COLUMN counter.cell_id IS 'Cell';
COMMENT ON COLUMN counter.phase IS 'warmup | measure | instrument';
COMMENT ON COLUMN counter.span IS 'phase: around the whole phase; busy: while all concurrency slots were busy';
COMMENT ON COLUMN counter.name IS 'Metric name';
COMMENT ON COLUMN counter.labels IS 'Labels, k="v", sorted, comma-joined';
COMMENT ON COLUMN counter.before IS 'Value before; NULL: the series did not exist yet';
COMMENT ON COLUMN counter.after IS 'Value after';
COMMENT ON COLUMN counter.before_unix_s IS 'Scraped, seconds since 1970';
COMMENT ON COLUMN counter.after_unix_s IS 'Scraped, seconds since 1970';

CREATE TABLE stage_time (
  run_id VARCHAR,
  cell_id VARCHAR,
  request_id VARCHAR,
  rank BIGINT,
  request_index BIGINT,
  step_index BIGINT,
  stage VARCHAR,
  position BIGINT,
  duration_s DOUBLE NOT NULL,
  source VARCHAR NOT NULL,
  PRIMARY KEY (run_id, cell_id, rank, request_index, step_index, stage, position)
);
COMMENT ON TABLE stage_time IS 'A timed stage of one engine step (INSTRUMENT only). Never add maxima over ranks.';
COMMENT ON COLUMN stage_time.run_id IS 'Run';
COMMENT ON COLUMN stage_time.cell_id IS 'Cell';
COMMENT ON COLUMN stage_time.request_id IS 'Request; NULL: not told apart';
COMMENT ON COLUMN stage_time.rank IS 'Tensor-parallel rank';
COMMENT ON COLUMN stage_time.request_index IS 'Request, order inside INSTRUMENT, from 0';
COMMENT ON COLUMN stage_time.step_index IS 'Step of the request, from 0';
COMMENT ON COLUMN stage_time.stage IS 'Name of the stage';
COMMENT ON COLUMN stage_time.position IS 'Draft position, from 0; -1: the stage has none';
COMMENT ON COLUMN stage_time.duration_s IS 'Duration, seconds';
COMMENT ON COLUMN stage_time.source IS 'cuda_event | perf_counter';

CREATE TABLE power_sample (
  run_id VARCHAR,
  node VARCHAR,
  t_unix_s DOUBLE,
  power_w DOUBLE,
  energy_j DOUBLE,
  temp_c DOUBLE,
  sm_clock_mhz DOUBLE,
  scope VARCHAR,
  source VARCHAR,
  unsupported_reason VARCHAR,
  PRIMARY KEY (run_id, node, scope, source, t_unix_s)
);
COMMENT ON TABLE power_sample IS 'One reading of one power sensor on one node. Scopes are never added or compared.';
COMMENT ON COLUMN power_sample.run_id IS 'Run';
COMMENT ON COLUMN power_sample.node IS 'Node';
COMMENT ON COLUMN power_sample.t_unix_s IS 'Read, seconds since 1970';
COMMENT ON COLUMN power_sample.power_w IS 'Power, watts; NULL: not readable';
COMMENT ON COLUMN power_sample.energy_j IS 'Energy counter, joules; NULL: none';
COMMENT ON COLUMN power_sample.temp_c IS 'Temperature, degrees Celsius';
COMMENT ON COLUMN power_sample.sm_clock_mhz IS 'SM clock, MHz';
COMMENT ON COLUMN power_sample.scope IS 'What the sensor covers: gpu, soc, wall, ...';
COMMENT ON COLUMN power_sample.source IS 'Which sensor: nvml, hwmon, ...';
COMMENT ON COLUMN power_sample.unsupported_reason IS 'Why there is no reading; NULL: there is';

CREATE TABLE canary (
  run_id VARCHAR,
  node VARCHAR,
  moment VARCHAR,
  kind VARCHAR,
  duration_s DOUBLE,
  reason VARCHAR,
  PRIMARY KEY (run_id, node, moment, kind)
);
COMMENT ON TABLE canary IS 'A fixed small computation timed before and after a run: it shows hidden machine states.';
COMMENT ON COLUMN canary.run_id IS 'Run';
COMMENT ON COLUMN canary.node IS 'Node';
COMMENT ON COLUMN canary.moment IS 'before | after';
COMMENT ON COLUMN canary.kind IS 'Which computation';
COMMENT ON COLUMN canary.duration_s IS 'Duration, seconds; NULL: see reason';
COMMENT ON COLUMN canary.reason IS 'Why there is no value';

CREATE TABLE environment (
  run_id VARCHAR,
  node VARCHAR,
  name VARCHAR,
  value VARCHAR,
  PRIMARY KEY (run_id, node, name)
);
COMMENT ON TABLE environment IS 'One named fact about the machine or the engine of a run.';
COMMENT ON COLUMN environment.run_id IS 'Run';
COMMENT ON COLUMN environment.node IS 'Node';
COMMENT ON COLUMN environment.name IS 'What';
COMMENT ON COLUMN environment.value IS 'Its value; NULL: could not be read';

CREATE TABLE failure (
  run_id VARCHAR,
  kind VARCHAR,
  reason VARCHAR NOT NULL,
  log_tail VARCHAR NOT NULL,
  unix_s DOUBLE NOT NULL,
  PRIMARY KEY (run_id, kind)
);
COMMENT ON TABLE failure IS 'Why a run failed, with evidence.';
COMMENT ON COLUMN failure.run_id IS 'Run';
COMMENT ON COLUMN failure.kind IS 'launch | not_ready | stalled | died | wrong_depth | http | short_output | wont_stop | clock | disk';
COMMENT ON COLUMN failure.reason IS 'In a sentence';
COMMENT ON COLUMN failure.log_tail IS 'Last lines of the server''s log';
COMMENT ON COLUMN failure.unix_s IS 'When, seconds since 1970';
