create table t(a integer primary key, b text, c real); with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t select i, 'row '||(i*7919%1000), i/7.0 from n;
create index tb on t(b); select count(*), sum(c), min(b), max(b) from t; select b, count(*) from t group by b order by 2 desc, 1 limit 5; explain query plan select * from t where b='row 5';
select json_extract('{"a":[1,2,3]}','$.a[1]'), printf('%08.3f',3.14159), datetime(0,'unixepoch'), round(2.5), sqrt(2), hex(zeroblob(3));
create virtual table f using fts5(x); insert into f values('hello world'),('goodbye world'); select * from f where f match 'world' order by rank;
.tables
.schema t
delete from t where a%3=0; vacuum; pragma integrity_check; select count(*) from t;
selec bad;
