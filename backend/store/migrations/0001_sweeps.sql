-- What was run: sweeps, cells, runs, requests and their steps.
-- Units are in the names (_s seconds, _ms, _w watts, _j joules, _tokens). Missing is NULL, never 0. A column a field of
-- backend/records.py, in its order. Never edit a released migration: add the next number.

CREATE TABLE sweep (
  sweep VARCHAR,
  source VARCHAR NOT NULL,
  created_unix_s DOUBLE,
  description VARCHAR NOT NULL,
  target_model VARCHAR NOT NULL,
  target_revision VARCHAR,
  speculator_method VARCHAR,
  speculator_model VARCHAR,
  speculator_revision VARCHAR,
  max_depth BIGINT,
  seed BIGINT,
  blocks BIGINT,
  reference_depths JSON NOT NULL,
  spec_toml VARCHAR,
  code_version VARCHAR NOT NULL,
  PRIMARY KEY (sweep)
);
COMMENT ON TABLE sweep IS 'A depth sweep: one target, one speculator, one workload, several draft depths K.';
COMMENT ON COLUMN sweep.sweep IS 'Name of the sweep';
COMMENT ON COLUMN sweep.source IS 'measured (by Sounding) | imported (another tool''s results) | published (printed figures) | simulated; sources are never pooled';
COMMENT ON COLUMN sweep.created_unix_s IS 'When the sweep was planned, seconds since 1970; NULL: not known';
COMMENT ON COLUMN sweep.description IS 'In a sentence';
COMMENT ON COLUMN sweep.target_model IS 'Target model, as the engine was told';
COMMENT ON COLUMN sweep.target_revision IS 'Commit or hash of the target; NULL: not stated';
COMMENT ON COLUMN sweep.speculator_method IS 'vLLM''s name for the method (draft_model, eagle3, ngram, dspark, ...)';
COMMENT ON COLUMN sweep.speculator_model IS 'Drafter model; NULL: the method has none, or it was not stated';
COMMENT ON COLUMN sweep.speculator_revision IS 'Commit or hash of the drafter; NULL: not stated';
COMMENT ON COLUMN sweep.max_depth IS 'Native (deepest trained) draft depth; NULL: unbounded or not stated';
COMMENT ON COLUMN sweep.seed IS 'Seed of the run order; NULL: order not randomised or not stated';
COMMENT ON COLUMN sweep.blocks IS 'Complete blocks planned; NULL: no blocks';
COMMENT ON COLUMN sweep.reference_depths IS 'JSON object, name -> K: depths the sweep is judged against (production, recipe, native)';
COMMENT ON COLUMN sweep.spec_toml IS 'The specification as it was run, verbatim; NULL: not run by Sounding';
COMMENT ON COLUMN sweep.code_version IS 'Version of the code that planned or imported the sweep';

CREATE TABLE cell (
  cell_id VARCHAR,
  sweep VARCHAR NOT NULL,
  concurrency BIGINT NOT NULL,
  context_tokens BIGINT,
  workload VARCHAR NOT NULL,
  endpoint VARCHAR,
  max_tokens BIGINT,
  temperature DOUBLE,
  ignore_eos BOOLEAN,
  PRIMARY KEY (cell_id)
);
COMMENT ON TABLE cell IS 'A measuring condition inside every run of a sweep: concurrency x context length x workload.';
COMMENT ON COLUMN cell.cell_id IS '<sweep>:<concurrency>x<context or text>:<workload>';
COMMENT ON COLUMN cell.sweep IS 'Sweep it belongs to';
COMMENT ON COLUMN cell.concurrency IS 'Requests in flight at once';
COMMENT ON COLUMN cell.context_tokens IS 'Prompt length in tokens; NULL: prompts as written';
COMMENT ON COLUMN cell.workload IS 'Name of the prompt set';
COMMENT ON COLUMN cell.endpoint IS 'completions | chat; NULL: not stated';
COMMENT ON COLUMN cell.max_tokens IS 'Most output tokens a request; NULL: not stated';
COMMENT ON COLUMN cell.temperature IS 'Sampling temperature, 0 is greedy; NULL: not stated';
COMMENT ON COLUMN cell.ignore_eos IS 'Whether end-of-sequence was ignored; NULL: not stated';

CREATE TABLE run (
  run_id VARCHAR,
  sweep VARCHAR NOT NULL,
  k BIGINT NOT NULL,
  block BIGINT,
  order_index BIGINT,
  attempt BIGINT NOT NULL,
  role VARCHAR NOT NULL,
  status VARCHAR NOT NULL,
  reason VARCHAR,
  valid BOOLEAN NOT NULL,
  exclusion_reason VARCHAR,
  started_unix_s DOUBLE,
  ended_unix_s DOUBLE,
  server_start_s DOUBLE,
  server_stop_s DOUBLE,
  reported_k BIGINT,
  command VARCHAR,
  env JSON,
  log_path VARCHAR,
  PRIMARY KEY (run_id)
);
COMMENT ON TABLE run IS 'One launch of one draft depth in one block. A failed run keeps its row.';
COMMENT ON COLUMN run.run_id IS '<sweep>:r<order_index>b<block>k<k>a<attempt>';
COMMENT ON COLUMN run.sweep IS 'Sweep it belongs to';
COMMENT ON COLUMN run.k IS 'Draft depth K (num_speculative_tokens); 0: speculation absent';
COMMENT ON COLUMN run.block IS 'Complete block, from 0; NULL: no blocks';
COMMENT ON COLUMN run.order_index IS 'Place in the run order, from 0; NULL: order not known';
COMMENT ON COLUMN run.attempt IS '1 for the first launch of this plot, 2 for its first repeat, ...';
COMMENT ON COLUMN run.role IS 'arm | anchor (K=0 at a sweep''s ends, for drift only: outside fits and n_runs)';
COMMENT ON COLUMN run.status IS 'running | done | failed | interrupted';
COMMENT ON COLUMN run.reason IS 'Why it is not done; NULL when it is';
COMMENT ON COLUMN run.valid IS 'False only on K-blind evidence: left out of summaries, see exclusion_reason';
COMMENT ON COLUMN run.exclusion_reason IS 'The evidence; NULL when valid';
COMMENT ON COLUMN run.started_unix_s IS 'Launch, seconds since 1970';
COMMENT ON COLUMN run.ended_unix_s IS 'Released, seconds since 1970';
COMMENT ON COLUMN run.server_start_s IS 'Launch to ready, seconds';
COMMENT ON COLUMN run.server_stop_s IS 'Stop to port and processes released, seconds';
COMMENT ON COLUMN run.reported_k IS 'Draft depth that the server itself reports';
COMMENT ON COLUMN run.command IS 'Launch command, shell-quoted';
COMMENT ON COLUMN run.env IS 'JSON object of what was set on top of the inherited environment';
COMMENT ON COLUMN run.log_path IS 'The server''s log';

CREATE TABLE request (
  request_id VARCHAR,
  run_id VARCHAR NOT NULL,
  cell_id VARCHAR NOT NULL,
  phase VARCHAR NOT NULL,
  request_index BIGINT NOT NULL,
  prompt_id VARCHAR NOT NULL,
  category VARCHAR,
  probe_on BOOLEAN,
  started_unix_s DOUBLE,
  client_total_s DOUBLE,
  clock VARCHAR,
  queue_s DOUBLE,
  prefill_s DOUBLE,
  ttft_s DOUBLE,
  decode_s DOUBLE,
  prompt_tokens BIGINT,
  output_tokens BIGINT,
  steps BIGINT,
  drafted_steps BIGINT,
  drafted_tokens BIGINT,
  accepted_tokens BIGINT,
  step_drafted INTEGER[],
  step_accepted INTEGER[],
  token_ids INTEGER[],
  output_hash VARCHAR,
  finish_reason VARCHAR,
  error VARCHAR,
  PRIMARY KEY (request_id)
);
COMMENT ON TABLE request IS 'One request. Times are the engine''s clock where clock is ''engine''. Warm-up and INSTRUMENT requests are here too: filter on phase.';
COMMENT ON COLUMN request.request_id IS '<run_id>:<cell suffix>:<phase>:<request_index>';
COMMENT ON COLUMN request.run_id IS 'Run it was sent in';
COMMENT ON COLUMN request.cell_id IS 'Cell it was sent in';
COMMENT ON COLUMN request.phase IS 'warmup (never counted) | measure | instrument';
COMMENT ON COLUMN request.request_index IS 'Order inside the phase, from 0';
COMMENT ON COLUMN request.prompt_id IS 'Prompt, the same in every run';
COMMENT ON COLUMN request.category IS 'Kind of prompt; NULL: none given';
COMMENT ON COLUMN request.probe_on IS 'INSTRUMENT only: were the stage timers recording';
COMMENT ON COLUMN request.started_unix_s IS 'Sent, seconds since 1970';
COMMENT ON COLUMN request.client_total_s IS 'Sent to complete by the client''s clock, seconds';
COMMENT ON COLUMN request.clock IS 'engine | client: whose clock the times below are';
COMMENT ON COLUMN request.queue_s IS 'Arrival to scheduled, seconds';
COMMENT ON COLUMN request.prefill_s IS 'Scheduled to first token, seconds (what vLLM calls time_to_first_token)';
COMMENT ON COLUMN request.ttft_s IS 'queue_s + prefill_s, seconds';
COMMENT ON COLUMN request.decode_s IS 'Decode window: first token to last token, seconds';
COMMENT ON COLUMN request.prompt_tokens IS 'Tokens in';
COMMENT ON COLUMN request.output_tokens IS 'Tokens out, the first included';
COMMENT ON COLUMN request.steps IS 'Decode steps, drafted or not';
COMMENT ON COLUMN request.drafted_steps IS 'Decode steps that carried a draft';
COMMENT ON COLUMN request.drafted_tokens IS 'Tokens drafted';
COMMENT ON COLUMN request.accepted_tokens IS 'Draft tokens accepted, those cut by EOS or max_tokens too';
COMMENT ON COLUMN request.step_drafted IS 'Tokens drafted, one entry a drafted step';
COMMENT ON COLUMN request.step_accepted IS 'Tokens accepted, one entry a drafted step';
COMMENT ON COLUMN request.token_ids IS 'Output token ids';
COMMENT ON COLUMN request.output_hash IS 'Hash of the output tokens';
COMMENT ON COLUMN request.finish_reason IS 'stop | length | ...';
COMMENT ON COLUMN request.error IS 'Why the request failed; NULL: it did not';

CREATE TABLE step (
  request_id VARCHAR,
  step_index BIGINT,
  start_token_index BIGINT,
  prefix_hash VARCHAR,
  drafted_tokens BIGINT NOT NULL,
  accepted_tokens BIGINT NOT NULL,
  PRIMARY KEY (request_id, step_index)
);
COMMENT ON TABLE step IS 'One drafted decode step of a request, from request.step_drafted and step_accepted.';
COMMENT ON COLUMN step.request_id IS 'Request';
COMMENT ON COLUMN step.step_index IS 'Drafted steps of the request, from 0';
COMMENT ON COLUMN step.start_token_index IS 'Output tokens emitted before the step; NULL where undrafted steps in between make it unknown';
COMMENT ON COLUMN step.prefix_hash IS 'Hash of prompt id and tokens emitted before the step: equal prefixes have equal hashes; NULL: unknown';
COMMENT ON COLUMN step.drafted_tokens IS 'Tokens drafted in the step';
COMMENT ON COLUMN step.accepted_tokens IS 'Tokens accepted in the step';
