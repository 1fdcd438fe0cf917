-- What a ledger on PostgreSQL does by itself: reserve, claim and settle, each checked where nobody can go around it.
-- An analyst may call these three functions and read the tables, nothing else (noisewise ledger grant --role NAME).
-- Names of the ledger are written in full and its schema is not on the path: who may create there could bring operators that
-- match closer than the server's own, and they would run with the rights of who keeps the ledger.

CREATE OR REPLACE FUNCTION noisewise_add(of_account text, of_number bigint, of_kind text, of_body text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  last {schema}.noisewise_ledger%ROWTYPE;
  moment text := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');
  next_head text;
BEGIN
  SELECT * INTO STRICT last FROM {schema}.noisewise_ledger WHERE one = 1 FOR UPDATE;
  next_head := encode(sha256(convert_to(concat_ws(E'\n', last.head, (last.seq + 1)::text, moment, of_account,
    coalesce(of_number::text, ''), of_kind, of_body), 'UTF8')), 'hex');
  INSERT INTO {schema}.noisewise_history (seq, at, account, number, kind, body, previous, hash)
    VALUES (last.seq + 1, moment, of_account, of_number, of_kind, of_body, last.head, next_head);
  UPDATE {schema}.noisewise_ledger SET seq = last.seq + 1, head = next_head WHERE one = 1;
END $$;

-- The number of the run, or null where it does not fit.
CREATE OR REPLACE FUNCTION noisewise_reserve(of_account text, of_key text, of_terms text, cost bigint, cost_delta bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  held {schema}.noisewise_accounts%ROWTYPE;
BEGIN
  PERFORM 1 FROM {schema}.noisewise_ledger WHERE one = 1 FOR UPDATE;  -- one at a time, also over accounts: the history is one chain
  SELECT * INTO held FROM {schema}.noisewise_accounts WHERE name = of_account FOR UPDATE;
  IF NOT FOUND THEN RAISE EXCEPTION 'there is no such account in this ledger'; END IF;
  IF cost IS NULL OR cost_delta IS NULL OR cost < 0 OR cost_delta < 0 OR of_key IS NULL OR of_terms IS NULL
    THEN RAISE EXCEPTION 'a run reserves at least nothing'; END IF;
  IF cost > held.cap - held.taken OR cost_delta > held.cap_delta - held.taken_delta THEN RETURN NULL; END IF;
  INSERT INTO {schema}.noisewise_runs (account, number, run_key, owner, terms, reserved, reserved_delta, state, claimed)
    VALUES (of_account, held.runs, of_key, session_user, of_terms, cost, cost_delta, 'reserved', 0);
  UPDATE {schema}.noisewise_accounts SET taken = taken + cost, taken_delta = taken_delta + cost_delta, runs = runs + 1
    WHERE name = of_account;
  PERFORM {schema}.noisewise_add(of_account, held.runs, 'reserved', json_build_object('key', of_key, 'owner', session_user,
    'terms', of_terms, 'reserved', cost, 'reserved_delta', cost_delta)::text);
  RETURN held.runs;
END $$;

-- The run of this number, if it is this user's own and not settled.
CREATE OR REPLACE FUNCTION noisewise_own(of_account text, of_number bigint) RETURNS {schema}.noisewise_runs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run {schema}.noisewise_runs%ROWTYPE;
BEGIN
  PERFORM 1 FROM {schema}.noisewise_ledger WHERE one = 1 FOR UPDATE;
  SELECT * INTO run FROM {schema}.noisewise_runs WHERE account = of_account AND number = of_number FOR UPDATE;
  IF FOUND AND run.owner <> session_user AND session_user <> current_user
    THEN RAISE EXCEPTION 'the run belongs to another user'; END IF;
  RETURN run;
END $$;

-- Whether the run was at `before`, and is at `after` now.
CREATE OR REPLACE FUNCTION noisewise_claim(of_account text, of_number bigint, before double precision, after double precision)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
  run {schema}.noisewise_runs%ROWTYPE := {schema}.noisewise_own(of_account, of_number);
BEGIN
  IF run.state IS DISTINCT FROM 'reserved' OR run.claimed IS DISTINCT FROM before OR before = after
    OR NOT (after >= 0 AND after <= 1) THEN RETURN false; END IF;
  UPDATE {schema}.noisewise_runs SET claimed = after WHERE account = of_account AND number = of_number;
  PERFORM {schema}.noisewise_add(of_account, of_number, 'claimed', json_build_object('before', before, 'after', after)::text);
  RETURN true;
END $$;

-- A run takes no less than it ever claimed, and by a sixteenth of its part less only if costs add up in its meter and it has the end of a closed journal (a text
-- like {"charged": 12, "head": "..."}), which goes into the history. A cast to numeric keeps 15 digits, hence the factor.
CREATE OR REPLACE FUNCTION noisewise_settle(of_account text, of_number bigint, of_claimed double precision, of_spent bigint,
  of_delta bigint, of_state text, of_events text, of_journal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  run {schema}.noisewise_runs%ROWTYPE := {schema}.noisewise_own(of_account, of_number);
  most double precision;
BEGIN
  IF run.state IS DISTINCT FROM 'reserved' OR run.claimed IS DISTINCT FROM of_claimed
    THEN RAISE EXCEPTION 'the run is not reserved as it should be; it may have been settled before'; END IF;
  IF of_spent IS NULL OR of_delta IS NULL OR of_spent < 0 OR of_delta < 0 OR of_spent > run.reserved
    OR of_delta > run.reserved_delta THEN RAISE EXCEPTION 'a run spends at most what it reserved'; END IF;
  IF of_state IS NULL OR of_state NOT IN ('spent', 'failed') OR of_events IS NULL
    THEN RAISE EXCEPTION 'a run ends as spent or failed'; END IF;
  SELECT max((body::json ->> 'after')::double precision) INTO most FROM {schema}.noisewise_history
    WHERE account = of_account AND number = of_number AND kind = 'claimed';
  IF most > 1e-300 AND (of_spent::numeric < most::numeric * run.reserved * (1 - 1e-12) OR of_delta < run.reserved_delta)
    AND ((run.terms::json -> 'meter' ->> 'meter') IS DISTINCT FROM 'additive'
      OR coalesce((of_journal::json ->> 'head') !~ '^[0-9a-f]{64}$', true)
      OR of_spent::numeric < (most::numeric - 0.0626) * run.reserved)
    THEN RAISE EXCEPTION 'a run without a closed journal settles no less than it claimed'; END IF;
  UPDATE {schema}.noisewise_runs SET spent = of_spent, spent_delta = of_delta, state = of_state, events = of_events
    WHERE account = of_account AND number = of_number;
  UPDATE {schema}.noisewise_accounts SET taken = taken - (run.reserved - of_spent),
    taken_delta = taken_delta - (run.reserved_delta - of_delta) WHERE name = of_account;
  PERFORM {schema}.noisewise_add(of_account, of_number, 'settled', CASE WHEN of_journal IS NULL
    THEN json_build_object('spent', of_spent, 'spent_delta', of_delta, 'state', of_state, 'events', of_events)
    ELSE json_build_object('spent', of_spent, 'spent_delta', of_delta, 'state', of_state, 'events', of_events,
      'journal', of_journal::json) END::text);
END $$;

CREATE OR REPLACE FUNCTION noisewise_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a history is only ever added to'; END $$;

DROP TRIGGER IF EXISTS noisewise_history_kept ON {schema}.noisewise_history;
CREATE TRIGGER noisewise_history_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.noisewise_history
FOR EACH STATEMENT EXECUTE FUNCTION noisewise_kept();

REVOKE ALL ON FUNCTION noisewise_add(text, bigint, text, text), noisewise_own(text, bigint),
  noisewise_reserve(text, text, text, bigint, bigint), noisewise_kept(),
  noisewise_claim(text, bigint, double precision, double precision),
  noisewise_settle(text, bigint, double precision, bigint, bigint, text, text, text) FROM PUBLIC;
