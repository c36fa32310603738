-- Forced starts: prefixes of recorded outputs replayed at every depth (phase 'forced' of request).

ALTER TABLE request ADD COLUMN replayed_tokens BIGINT;
COMMENT ON COLUMN request.replayed_tokens IS 'Phase forced only: output tokens of an earlier answer that were sent as prompt; token_ids begins with them';
COMMENT ON COLUMN request.phase IS 'warmup (never counted) | measure | instrument | forced (starts replayed at every depth, for acceptance only)';
COMMENT ON TABLE request IS 'One request. Times are the engine''s clock where clock is ''engine''. Warm-up, INSTRUMENT and forced requests are here too: filter on phase.';
