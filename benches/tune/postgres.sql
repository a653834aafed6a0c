-- Statements of many kinds, for pgbench.
\set a random(1, 90000)
SELECT count(*), sum(abalance), avg(bid) FROM pgbench_accounts WHERE aid BETWEEN :a AND :a + 300;
SELECT t.tid, b.bbalance, upper(substr(md5(t.tid::text), 1, 7)) FROM pgbench_tellers t JOIN pgbench_branches b USING (bid) WHERE t.tid < 20 ORDER BY 3;
SELECT bid, max(abalance), string_agg((aid % 7)::text, ',') FROM pgbench_accounts WHERE aid BETWEEN :a AND :a + 50 GROUP BY bid HAVING count(*) > 1;
UPDATE pgbench_tellers SET tbalance = CASE WHEN tbalance > 100 THEN 0 ELSE tbalance + 1 END WHERE tid = 1 + :a % 10;
