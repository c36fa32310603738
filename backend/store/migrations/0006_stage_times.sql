-- stage_time without a primary key: hundreds of thousands of rows a sweep, whose index would be larger than they are.
-- Ingesting a request's stages deletes what it had before, so (run_id, cell_id, rank, request_index, step_index, stage,
-- position) stays the key in effect. Nothing had filled the table before.
DROP TABLE stage_time;

CREATE TABLE stage_time (
  run_id VARCHAR NOT NULL,
  cell_id VARCHAR NOT NULL,
  request_id VARCHAR NOT NULL,
  rank BIGINT NOT NULL,
  request_index BIGINT NOT NULL,
  step_index BIGINT NOT NULL,
  stage VARCHAR NOT NULL,
  position BIGINT NOT NULL,
  duration_s DOUBLE NOT NULL,
  source VARCHAR NOT NULL
);
COMMENT ON TABLE stage_time IS 'A timed stage of one engine step (INSTRUMENT only); stages are exclusive. Never add maxima over ranks.';
COMMENT ON COLUMN stage_time.run_id IS 'Run';
COMMENT ON COLUMN stage_time.cell_id IS 'Cell';
COMMENT ON COLUMN stage_time.request_id IS 'Request';
COMMENT ON COLUMN stage_time.rank IS 'Tensor-parallel rank';
COMMENT ON COLUMN stage_time.request_index IS 'Request, order inside INSTRUMENT, from 0';
COMMENT ON COLUMN stage_time.step_index IS 'Step of the request: 1, 2, ... are decode steps, 0 and below are prefill';
COMMENT ON COLUMN stage_time.stage IS 'Name of the stage';
COMMENT ON COLUMN stage_time.position IS 'Draft position, from 0; -1: the stage has none';
COMMENT ON COLUMN stage_time.duration_s IS 'Time in this stage alone, seconds';
COMMENT ON COLUMN stage_time.source IS 'cuda_event | perf_counter';
