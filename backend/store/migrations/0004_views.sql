-- Views for SQL users, pages and analysis. Formulas: "Terms and formulas" of the design, repeated in the comments (0005).
-- Totals that a tool reports for a run beside its requests (bench results: drafts and acceptance are server counters)
-- fill in for what the requests do not tell.
-- Every ratio is a ratio of sums; a sum is NULL as soon as one of its requests lacks the figure. Missing is NULL, never 0.

CREATE VIEW run_cell AS
WITH sent AS (  -- MEASURE requests; with K=0 nothing is drafted by definition, with one token out nothing is decoded
  SELECT q.run_id, q.cell_id, q.error IS NULL AS ok, q.ttft_s, q.started_unix_s, q.client_total_s,
    CASE WHEN q.output_tokens > 1 THEN q.output_tokens - 1 WHEN q.output_tokens IS NOT NULL THEN 0 END AS after_first,
    CASE WHEN q.output_tokens <= 1 THEN coalesce(q.decode_s, 0) ELSE q.decode_s END AS decode_s,
    CASE WHEN q.output_tokens <= 1 THEN coalesce(q.steps, 0) ELSE q.steps END AS steps,
    CASE WHEN r.k = 0 OR q.output_tokens <= 1 THEN coalesce(q.drafted_steps, 0) ELSE q.drafted_steps END AS drafted_steps,
    CASE WHEN r.k = 0 OR q.output_tokens <= 1 THEN coalesce(q.drafted_tokens, 0) ELSE q.drafted_tokens END
      AS drafted_tokens,
    CASE WHEN r.k = 0 OR q.output_tokens <= 1 THEN coalesce(q.accepted_tokens, 0) ELSE q.accepted_tokens END
      AS accepted_tokens
  FROM request q JOIN run r USING (run_id)
  WHERE q.phase = 'measure'
), span AS (  -- errors are counted, and the span is the whole phase of the cell
  SELECT run_id, cell_id, count(*) FILTER (ok) AS n_requests, count(*) FILTER (NOT ok) AS n_errors,
    min(started_unix_s) AS begin_unix_s, max(started_unix_s + client_total_s) AS end_unix_s
  FROM sent GROUP BY run_id, cell_id
), sums AS (
  SELECT run_id, cell_id,
    CASE WHEN count(after_first) = count(*) THEN sum(after_first)::BIGINT END AS tokens_after_first,
    CASE WHEN count(decode_s) = count(*) THEN sum(decode_s) END AS decode_s,
    CASE WHEN count(steps) = count(*) THEN sum(steps)::BIGINT END AS steps,
    CASE WHEN count(drafted_steps) = count(*) THEN sum(drafted_steps)::BIGINT END AS drafted_steps,
    CASE WHEN count(drafted_tokens) = count(*) THEN sum(drafted_tokens)::BIGINT END AS drafted_tokens,
    CASE WHEN count(accepted_tokens) = count(*) THEN sum(accepted_tokens)::BIGINT END AS accepted_tokens,
    CASE WHEN count(ttft_s) = count(*) THEN avg(ttft_s) END AS ttft_s
  FROM sent WHERE ok GROUP BY run_id, cell_id
), busy AS (  -- all slots busy, summed over engines; a counter that went backwards was reset
  SELECT run_id, cell_id,
    CASE WHEN bool_and(after >= coalesce(before, 0))
      THEN sum(after - coalesce(before, 0)) / nullif(max(after_unix_s) - min(before_unix_s), 0) END AS tok_s
  FROM counter WHERE phase = 'measure' AND span = 'busy' AND name = 'vllm:generation_tokens_total'
  GROUP BY run_id, cell_id
), node_power AS (
  SELECT s.run_id, s.cell_id, p.scope, p.source, p.node, avg(p.power_w) AS power_w
  FROM span s JOIN power_sample p ON p.run_id = s.run_id AND p.t_unix_s BETWEEN s.begin_unix_s AND s.end_unix_s
  WHERE p.power_w IS NOT NULL
  GROUP BY ALL
), power AS (  -- one sensor kind that covers all nodes, the widest scope there is; scopes are never added
  SELECT n.run_id, n.cell_id, n.scope, sum(n.power_w) AS power_w
  FROM node_power n
  JOIN (SELECT run_id, count(DISTINCT node) AS nodes FROM power_sample GROUP BY run_id) every_node USING (run_id)
  GROUP BY n.run_id, n.cell_id, n.scope, n.source, every_node.nodes
  HAVING count(*) = every_node.nodes
  QUALIFY row_number() OVER (PARTITION BY n.run_id, n.cell_id ORDER BY
    CASE n.scope WHEN 'wall' THEN 0 WHEN 'node' THEN 1 WHEN 'soc' THEN 2 WHEN 'gpu' THEN 3 ELSE 4 END, n.scope, n.source) = 1
), reported AS (
  SELECT run_id, cell_id,
    max(value) FILTER (quantity = 'n_requests')::BIGINT AS n_requests,
    max(value) FILTER (quantity = 'decode_tok_s') AS decode_tok_s,
    max(value) FILTER (quantity = 'tokens_per_step') AS tokens_per_step,
    max(value) FILTER (quantity = 'acceptance_length') AS acceptance_length,
    max(value) FILTER (quantity = 'acceptance') AS acceptance,
    max(value) FILTER (quantity = 'drafted_steps')::BIGINT AS drafted_steps,
    max(value) FILTER (quantity = 'drafted_tokens')::BIGINT AS drafted_tokens,
    max(value) FILTER (quantity = 'accepted_tokens')::BIGINT AS accepted_tokens,
    max(value) FILTER (quantity = 'cycle_ms') AS cycle_ms,
    max(value) FILTER (quantity = 'ttft_s') AS ttft_s,
    max(value) FILTER (quantity = 'power_w') AS power_w,
    max(value) FILTER (quantity = 'tokens_per_joule') AS tokens_per_joule
  FROM reported_value GROUP BY run_id, cell_id
), figures AS (
  SELECT r.sweep, r.run_id, both_kinds.cell_id, r.k, r.block, r.order_index, r.role, r.status, r.valid, w.source,
    c.concurrency, c.context_tokens, c.workload, span.run_id IS NOT NULL AS has_requests,
    CASE WHEN has_requests THEN span.n_requests ELSE p.n_requests END AS n_requests,
    r.k > 0 AND s.accepted_tokens IS NULL AND p.accepted_tokens IS NOT NULL AS as_reported,
    span.n_errors, s.tokens_after_first, s.decode_s, s.steps,
    CASE WHEN as_reported THEN p.drafted_steps ELSE s.drafted_steps END AS drafted_steps,
    CASE WHEN as_reported THEN p.drafted_tokens ELSE s.drafted_tokens END AS drafted_tokens,
    CASE WHEN as_reported THEN p.accepted_tokens ELSE s.accepted_tokens END AS accepted_tokens,
    CASE WHEN as_reported AND span.n_errors > 0 THEN NULL  -- the totals hold what the failed requests drafted too
         ELSE s.steps + CASE WHEN as_reported THEN p.accepted_tokens ELSE s.accepted_tokens END - s.tokens_after_first
         END AS overshoot_tokens,
    CASE WHEN NOT has_requests THEN p.decode_tok_s
         WHEN c.concurrency = 1 THEN s.tokens_after_first / nullif(s.decode_s, 0)
         WHEN span.n_requests >= 10 * c.concurrency THEN busy.tok_s END AS decode_tok_s,
    CASE WHEN has_requests THEN s.tokens_after_first / nullif(s.steps, 0) ELSE p.tokens_per_step END AS tokens_per_step,
    CASE WHEN as_reported THEN coalesce(1 + p.accepted_tokens / nullif(p.drafted_steps, 0), p.acceptance_length)
         WHEN NOT has_requests THEN p.acceptance_length
         WHEN r.k = 0 THEN CASE WHEN span.n_requests > 0 THEN 1.0::DOUBLE END
         ELSE coalesce(1 + s.accepted_tokens / nullif(s.drafted_steps, 0), p.acceptance_length) END AS acceptance_length,
    CASE WHEN as_reported THEN coalesce(p.accepted_tokens / nullif(p.drafted_tokens, 0), p.acceptance)
         WHEN NOT has_requests THEN p.acceptance
         WHEN r.k > 0 THEN coalesce(s.accepted_tokens / nullif(s.drafted_tokens, 0), p.acceptance) END AS acceptance,
    CASE WHEN c.concurrency > 1 THEN NULL
         WHEN has_requests THEN 1e3 * s.decode_s / nullif(s.steps, 0)
         ELSE coalesce(p.cycle_ms, 1e3 * p.tokens_per_step / nullif(p.decode_tok_s, 0)) END::DOUBLE AS cycle_ms,
    CASE WHEN has_requests THEN s.ttft_s ELSE p.ttft_s END AS ttft_s,
    coalesce(power.power_w, p.power_w) AS power_w,
    CASE WHEN power.power_w IS NOT NULL THEN power.scope WHEN p.power_w IS NOT NULL THEN 'reported' END AS power_scope,
    CASE WHEN NOT has_requests THEN p.tokens_per_joule END AS reported_tokens_per_joule
  FROM (SELECT run_id, cell_id FROM span UNION SELECT run_id, cell_id FROM reported) both_kinds
  JOIN run r USING (run_id)
  JOIN sweep w ON w.sweep = r.sweep
  LEFT JOIN cell c ON c.cell_id = both_kinds.cell_id
  LEFT JOIN span ON span.run_id = r.run_id AND span.cell_id = both_kinds.cell_id
  LEFT JOIN sums s ON s.run_id = r.run_id AND s.cell_id = both_kinds.cell_id
  LEFT JOIN busy ON busy.run_id = r.run_id AND busy.cell_id = both_kinds.cell_id
  LEFT JOIN power ON power.run_id = r.run_id AND power.cell_id = both_kinds.cell_id
  LEFT JOIN reported p ON p.run_id = r.run_id AND p.cell_id = both_kinds.cell_id
)
SELECT * EXCLUDE (has_requests, as_reported, reported_tokens_per_joule),
  coalesce(reported_tokens_per_joule, decode_tok_s / nullif(power_w, 0)) AS tokens_per_joule
FROM figures;

CREATE VIEW k_summary AS
SELECT sweep, cell_id, k, any_value(source) AS source, any_value(concurrency) AS concurrency,
  any_value(context_tokens) AS context_tokens, any_value(workload) AS workload,
  count(*) AS n_runs, sum(n_requests)::BIGINT AS n_requests, sum(n_errors)::BIGINT AS n_errors,
  avg(decode_tok_s) AS decode_tok_s, avg(tokens_per_step) AS tokens_per_step,
  avg(acceptance_length) AS acceptance_length, avg(acceptance) AS acceptance, avg(cycle_ms) AS cycle_ms,
  avg(ttft_s) AS ttft_s,
  CASE WHEN count(DISTINCT power_scope) = 1 THEN avg(power_w) END AS power_w,
  CASE WHEN count(DISTINCT power_scope) = 1 THEN any_value(power_scope) END AS power_scope,
  CASE WHEN count(DISTINCT power_scope) <= 1 THEN avg(tokens_per_joule) END AS tokens_per_joule
FROM run_cell
WHERE role = 'arm' AND status = 'done' AND valid
GROUP BY sweep, cell_id, k;

CREATE VIEW acceptance_by_position AS
WITH seen AS (  -- drafted steps by how much was drafted and accepted: few rows, whatever the number of steps
  SELECT r.sweep, q.cell_id, r.k, s.drafted_tokens AS drafted, s.accepted_tokens AS accepted, count(*) AS n
  FROM step s JOIN request q USING (request_id) JOIN run r USING (run_id)
  WHERE q.phase = 'measure' AND q.error IS NULL AND s.drafted_tokens > 0
    AND r.role = 'arm' AND r.status = 'done' AND r.valid
  GROUP BY ALL
), counted AS (
  SELECT sweep, cell_id, k, p.position, sum(n)::BIGINT AS drafted_steps,
    coalesce(sum(n) FILTER (drafted > p.position), 0)::BIGINT AS drafted_at_position,
    coalesce(sum(n) FILTER (accepted > p.position), 0)::BIGINT AS accepted,
    sum(n) FILTER (accepted >= p.position) AS reached  -- position 0 is reached by every draft
  FROM seen JOIN (SELECT unnest(range(1 + (SELECT max(k) FROM run))) AS position) p ON p.position < seen.k
  GROUP BY ALL
), reported AS (
  SELECT r.sweep, v.cell_id, r.k, try_cast(v.quantity[10:] AS BIGINT) AS position, avg(v.value) AS survival
  FROM reported_value v JOIN run r USING (run_id)
  WHERE starts_with(v.quantity, 'survival_') AND r.role = 'arm' AND r.status = 'done' AND r.valid
    AND NOT EXISTS (FROM request q WHERE q.run_id = v.run_id AND q.cell_id = v.cell_id AND q.phase = 'measure'
      AND q.step_drafted IS NOT NULL)
  GROUP BY ALL
), rates AS (
  SELECT sweep, cell_id, k, position, drafted_steps, drafted_at_position, accepted,
    accepted / drafted_steps AS survival, accepted / nullif(reached, 0) AS conditional,
    accepted / nullif(drafted_at_position, 0) AS per_drafted
  FROM counted
  UNION ALL
  SELECT a.sweep, a.cell_id, a.k, a.position, NULL, NULL, NULL, a.survival,
    CASE WHEN a.position = 0 THEN a.survival ELSE a.survival / nullif(b.survival, 0) END, NULL
  FROM reported a LEFT JOIN reported b
    ON b.sweep = a.sweep AND b.cell_id = a.cell_id AND b.k = a.k AND b.position = a.position - 1
)
SELECT rates.*, w.source FROM rates JOIN sweep w ON w.sweep = rates.sweep;

CREATE VIEW cycle_fit AS
-- A row a fit of the draft cost. Its other figures are those of the same window; where several methods gave one,
-- that of the same method as the draft cost, else the first that was computed.
SELECT d.sweep, d.cell_id, d.window_k, w.source, d.n,
  arg_min_null(o.value, o.ordinal + 1e9 * (o.method <> d.method)::INT) FILTER (o.quantity = 't_verify_base_ms')
    AS t_verify_base_ms,
  d.value AS t_draft_ms, d.low AS t_draft_low_ms, d.high AS t_draft_high_ms,
  arg_min_null(o.value, o.ordinal + 1e9 * (o.method <> d.method)::INT) FILTER (o.quantity = 't_marginal_ms')
    AS t_marginal_ms,
  arg_min_null(o.low, o.ordinal + 1e9 * (o.method <> d.method)::INT) FILTER (o.quantity = 't_marginal_ms')
    AS t_marginal_low_ms,
  arg_min_null(o.high, o.ordinal + 1e9 * (o.method <> d.method)::INT) FILTER (o.quantity = 't_marginal_ms')
    AS t_marginal_high_ms,
  arg_min_null(o.value, o.ordinal + 1e9 * (o.method <> d.method)::INT) FILTER (o.quantity = 'residual_ms')
    AS residual_ms,
  d.level, d.method, d.reason, d.code_version
FROM estimate d
JOIN sweep w ON w.sweep = d.sweep
LEFT JOIN estimate o ON o.sweep = d.sweep AND o.cell_id IS NOT DISTINCT FROM d.cell_id
  AND o.window_k IS NOT DISTINCT FROM d.window_k
WHERE d.quantity = 't_draft_ms'
GROUP BY ALL;
