program load;
{$mode objfpc}
uses SysUtils, Classes;
type ENumber = class(Exception) n: integer; end;
function fib(n: integer): int64; begin if n < 2 then result := n else result := fib(n - 1) + fib(n - 2); end;
procedure fail(n: integer); var e: ENumber; begin e := ENumber.Create('no'); e.n := n; raise e; end;
var list: TStringList; i, caught: integer;
begin
  writeln(fib(27));
  list := TStringList.Create;
  for i := 1 to 3000 do list.Add(Format('%.4d', [i * 7919 mod 3001]));
  list.Sort; writeln(list[0], ' ', list[2999], ' ', list.IndexOf('1234'));
  caught := 0;
  for i := 1 to 2000 do
    try
      try if odd(i) then fail(i); finally inc(caught); end;
    except on e: ENumber do inc(caught, e.n mod 5); end;
  writeln(caught);
  list.Free;
end.
