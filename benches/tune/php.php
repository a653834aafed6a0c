<?php
// Calls, arrays, strings, objects, patterns. Takes how many rounds it goes; without an end otherwise.
final class Point
{
    public function __construct(public float $x, public float $y) {}
    public function added(Point $other): Point { return new Point($this->x + $other->x, $this->y * 0.5 + $other->y); }
}
function fib(int $n): int { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
$rounds = (int) ($argv[1] ?? -1);
$seen = [];
while ($rounds-- !== 0) {
    $text = "the quick brown fox jumps over the lazy dog " . fib(12);
    $words = array_map('ucfirst', preg_split('/\s+/', $text));
    usort($words, fn ($a, $b) => strlen($a) <=> strlen($b) ?: strcmp($a, $b));
    $point = new Point(0.0, 1.0);
    foreach ($words as $at => $word) {
        $seen['w' . $word] = ($seen['w' . $word] ?? 0) + 1;
        $point = $point->added(new Point($at, strlen($word)));
        $changed = preg_replace_callback('/[aeiou]/', fn ($m) => strtoupper($m[0]) . $at, $word);
        $seen[$changed] = implode(',', array_reverse(str_split($changed)));
    }
    $seen = array_filter($seen, fn ($key) => strlen((string) $key) <= 6, ARRAY_FILTER_USE_KEY);
    fwrite(STDOUT, sprintf("%s %05d %s\n", substr($text, 4, 9), count($seen), json_encode([$point->x, $words])));
}
