(* Exceptions, closures, variants, garbage collection, functors. *)
exception Found of int
module S = Set.Make (struct type t = string let compare = compare end)
let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
let find p a = try Array.iteri (fun i x -> if p x then raise (Found i)) a; -1 with Found i -> i
type tree = Leaf | Node of tree * int * tree
let rec insert x = function
  | Leaf -> Node (Leaf, x, Leaf)
  | Node (l, y, r) when x < y -> Node (insert x l, y, r)
  | Node (l, y, r) -> Node (l, y, insert x r)
let rec depth = function Leaf -> 0 | Node (l, _, r) -> 1 + max (depth l) (depth r)
let () =
  Printf.printf "%d\n" (fib 25);
  let a = Array.init 5000 (fun i -> i * 7919 mod 5003) in
  Printf.printf "%d %d\n" (find (fun x -> x = 77) a) (depth (Array.fold_right insert a Leaf));
  let s = Array.fold_left (fun s x -> S.add (string_of_int (x mod 100)) s) S.empty a in
  Printf.printf "%d %s\n" (S.cardinal s) (S.max_elt s);
  let caught = ref 0 in
  for i = 0 to 20000 do try if i mod 3 = 0 then failwith "x" with Failure _ -> incr caught done;
  Printf.printf "%d %.9f\n" !caught (List.fold_left (fun x i -> x +. sin (float_of_int i)) 0. (List.init 1000 Fun.id))
