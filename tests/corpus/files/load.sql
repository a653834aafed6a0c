create table t (id integer primary key, name text, grp text, amount real, note text);
.mode csv
.import --skip 1 in.csv t
.mode list
select count(*), round(sum(amount), 2), min(name), max(note) from t;
create index by_group on t (grp, amount);
select grp, count(*), round(avg(amount), 3) from t group by grp order by 2 desc, 1 limit 10;
with recursive f(n, a, b) as (values (1, 0, 1) union all select n + 1, b, a + b from f where n < 60) select a from f order by n desc limit 1;
select name, rank() over (partition by grp order by amount desc, id) as place from t where id % 97 = 0 order by place, name limit 12;
begin; update t set amount = amount * 1.1 where grp = 'g3'; delete from t where id % 7 = 0; commit;
select count(*), printf('%.3f', sum(amount)) from t where name like '%an%' or note glob '*st*';
create virtual table words using fts5(name, note); insert into words select name, note from t;
select count(*) from words where words match 'ka* or lo*';
select json_group_array(grp) from (select distinct grp from t order by 1);
insert into t values (1, 'x', 'y', 0, ''); insert into t values (1, 'x', 'y', 0, '');
select no_such_column from t;
vacuum; pragma integrity_check;
