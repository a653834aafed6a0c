-- Each round makes and takes away as much, and does the same in each run.
INSERT INTO t(a, b) SELECT rowid * 7919 % 1000, hex(rowid * 104729) FROM t LIMIT 20;
SELECT count(*), sum(a), max(b) FROM t WHERE a BETWEEN 100 AND 300;
SELECT a % 10, group_concat(substr(b, 1, 2)) FROM t WHERE a < 50 GROUP BY 1 ORDER BY 2;
DELETE FROM t WHERE rowid < (SELECT max(rowid) - 2000 FROM t);
