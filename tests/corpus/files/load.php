<?php
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
echo fib(22), "\n";
$data = json_decode(file_get_contents('in.json'), true);
usort($data, fn($a, $b) => [$a['id'], $a['name']] <=> [$b['id'], $b['name']]);
echo count($data), ' ', md5(json_encode($data)), "\n";
$text = file_get_contents('in.txt');
echo preg_match_all('/\b(\w)\w*\1\b/', $text), ' ', strlen(preg_replace_callback('/[aeiou]+/', fn($m) => strtoupper($m[0]), $text)), "\n";
$caught = 0;
for ($n = 0; $n < 5000; $n++) { try { try { if ($n % 2) throw new RuntimeException("$n"); } finally { $caught++; } } catch (RuntimeException $e) { $caught += 2; } }
echo $caught, "\n";
function made() { for ($n = 0; $n < 10000; $n++) yield $n => $n ** 2 % 97; }
$sum = 0; foreach (made() as $k => $v) $sum += $k * $v; echo $sum, "\n";
echo sprintf('%08.3f|%-6s|%b', M_PI, 'ab', 77), ' ', hash('sha256', $text), ' ', strlen(gzcompress($text, 9)), "\n";
