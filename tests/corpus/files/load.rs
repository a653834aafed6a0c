// Traits, generics, panics caught, collections: input for rustc.
use std::collections::BTreeMap;
trait Area { fn area(&self) -> f64; }
struct Square(f64);
struct Circle(f64);
impl Area for Square { fn area(&self) -> f64 { self.0 * self.0 } }
impl Area for Circle { fn area(&self) -> f64 { self.0 * self.0 * 3.0 } }
fn total(list: &[Box<dyn Area>]) -> f64 { list.iter().map(|a| a.area()).sum() }
fn fold<T: Copy + std::ops::Add<Output = T>>(list: &[T], start: T) -> T { list.iter().fold(start, |a, b| a + *b) }
fn main() {
    let list: Vec<Box<dyn Area>> = vec![Box::new(Square(2.0)), Box::new(Circle(1.0))];
    println!("{}", total(&list));
    println!("{} {}", fold(&[1, 2, 3], 0), fold(&[0.5, 0.25], 1.0));
    let mut count: BTreeMap<char, usize> = BTreeMap::new();
    for c in "mississippi".chars() { *count.entry(c).or_default() += 1; }
    println!("{count:?}");
    let caught = std::panic::catch_unwind(|| { let empty: Vec<u8> = Vec::new(); empty[count.len()] });
    println!("{}", caught.is_err());
}
