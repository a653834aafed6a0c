//! Where in a process's address space new code and memory may go: they should be in nobody's way, and
//! stay free until they are mapped.

use std::ops::Range;
use std::path::Path;

use fettle_image::{Image, Kind, LinkAddr};
use fettle_live::{LiveAddr, Mapping};

const PAGE: u64 = 4096;
/// Places that are tried lie so far from each other.
const STEP: u64 = 1 << 20;
/// How far a jump reaches, less what jumps into the middle of what is mapped may need.
const REACH: u64 = (1 << 31) - (1 << 24);
/// Right below libraries is what the kernel gives out next.
const FROM_NEIGHBOURS: u64 = 1 << 28;
/// What the main thread's stack is left to grow into, whatever its limit is.
const STACK: u64 = 1 << 30;
/// The stack is at most so far above what the kernel maps first, which it chooses at random in a TiB,
/// unless it maps from the bottom (`ulimit -s unlimited`).
const STACK_FROM_MAPPINGS: u64 = 1 << 41;

/// A link address for `size` bytes of new code that is free and within reach of all of `image`, in a
/// process that stands still until they are mapped.
///
/// It is at the same distance in every process that has the room, so that one link serves them all.
/// Below a position-independent image the address space is free, and the heap does not grow there.
/// Right below a library, though, is what the kernel gives out next: new code keeps away. A
/// fixed-address image lies at the bottom of the address space: its new code goes to the top of the
/// lowest 2 GiB, which leaves the heap most of the room above the image.
pub fn find_room(image: &Image, load_bias: u64, size: u64, maps: &[Mapping]) -> Option<LinkAddr> {
    find(image, load_bias, size, maps, |room, image| room.below(image))
}

/// As [`find_room`], in a process that runs, and maps memory itself, until they are.
///
/// The kernel maps libraries and all that a process asks for from the top down, below what it has
/// mapped. It never goes above where it began, and the stack ends far above that: new code of a
/// library lies there, where no stack or arena of a thread takes its place before it is mapped. Where
/// that is out of reach, it lies as far below its library as it may.
pub fn find_lasting_room(
    image: &Image,
    load_bias: u64,
    size: u64,
    maps: &[Mapping],
) -> Option<LinkAddr> {
    find(image, load_bias, size, maps, |room, image| room.lasting(image))
}

fn find(
    image: &Image,
    load_bias: u64,
    size: u64,
    maps: &[Mapping],
    near: impl Fn(&Room<'_>, &Range<u64>) -> Option<u64>,
) -> Option<LinkAddr> {
    let low = image.segments().iter().map(|s| s.start.0).min()?;
    let high = image.segments().iter().map(|s| s.start.0 + s.mem_size).max()?;
    let image_at = load_bias.wrapping_add(low)..load_bias.wrapping_add(high);
    let room = Room { size: size.next_multiple_of(PAGE), maps };
    let live = match image.kind() {
        Kind::Executable => room.in_low_memory(&image_at),
        _ => near(&room, &image_at),
    };
    Some(LinkAddr(live?.wrapping_sub(load_bias)))
}

/// A hole of `size` bytes anywhere above `from`.
pub fn find_hole(from: u64, size: u64, maps: &[Mapping]) -> Option<LiveAddr> {
    let mut at = from;
    let mut sorted: Vec<&Mapping> = maps.iter().collect();
    sorted.sort_by_key(|m| m.start.0);
    for map in sorted {
        if map.end.0 <= at {
            continue;
        }
        if map.start.0 >= at.checked_add(size)? {
            break;
        }
        at = map.end.0.next_multiple_of(1 << 21);
    }
    (at.checked_add(size)? < 1 << 47).then_some(LiveAddr(at))
}

/// Room for so many bytes in a process with these mappings, near an image.
struct Room<'a> {
    size: u64,
    maps: &'a [Mapping],
}

impl Room<'_> {
    fn is_free(&self, at: u64) -> bool {
        self.maps.iter().all(|m| m.end.0 <= at || m.start.0 >= at + self.size)
    }

    /// As high as it may be, or as low.
    fn first(&self, lowest: u64, highest: u64, from_top: bool) -> Option<u64> {
        let steps = highest.checked_sub(lowest)? / STEP;
        let at = |i| if from_top { highest - i * STEP } else { lowest + i * STEP };
        (0..=steps).map(at).find(|at| self.is_free(*at))
    }

    fn in_low_memory(&self, image: &Range<u64>) -> Option<u64> {
        let top = (1u64 << 31).checked_sub(STEP + self.size)? & !(PAGE - 1);
        self.first(image.end.next_multiple_of(PAGE) + STEP, top, true)
    }

    fn below(&self, image: &Range<u64>) -> Option<u64> {
        let lowest = lowest(image);
        let below = |distance| {
            let highest = image.start.checked_sub(distance + self.size)? & !(PAGE - 1);
            self.first(lowest, highest, true)
        };
        below(FROM_NEIGHBOURS).or_else(|| below(STEP))
    }

    fn lasting(&self, image: &Range<u64>) -> Option<u64> {
        self.above_mappings(image).or_else(|| {
            let highest = image.start.checked_sub(STEP + self.size)? & !(PAGE - 1);
            self.first(lowest(image), highest, false)
        })
    }

    fn above_mappings(&self, image: &Range<u64>) -> Option<u64> {
        let stack = self.maps.iter().find(|m| m.name.as_deref() == Some("stack"))?.start.0;
        // New code is a file in memory.
        let is_memory = |path: &Path| path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
        let is_file = |m: &&Mapping| m.path.as_ref().is_some_and(|path| !is_memory(path));
        let files = self.maps.iter().filter(is_file).map(|m| m.end.0);
        let top = files.filter(|end| *end <= stack).max()?;
        if stack - top > STACK_FROM_MAPPINGS {
            return None;
        }
        let end = (image.start + REACH).min(stack.checked_sub(STACK)?);
        self.first(top + STEP, end.checked_sub(self.size)? & !(PAGE - 1), false)
    }
}

/// The lowest place that reaches all of an image.
fn lowest(image: &Range<u64>) -> u64 {
    image.end.saturating_sub(REACH).max(1 << 16).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: u64 = 0x7f12_3400_0000;
    const TOP: u64 = LIBRARY + (1 << 28);

    fn mapping(start: u64, end: u64, path: Option<&str>, name: Option<&str>) -> Mapping {
        Mapping {
            start: LiveAddr(start),
            end: LiveAddr(end),
            readable: true,
            writable: false,
            executable: true,
            shared: false,
            offset: 0,
            device: (0, 0),
            inode: 0,
            path: path.map(Into::into),
            deleted: false,
            name: name.map(str::to_owned),
        }
    }

    /// Files at these addresses, but for the last, where the stack is.
    fn maps(at: &[(u64, u64)]) -> Vec<Mapping> {
        let (stack, files) = at.split_last().unwrap();
        let files = files.iter().map(|(a, z)| mapping(*a, *z, Some("/lib/some.so"), None));
        files.chain([mapping(stack.0, stack.1, None, Some("stack"))]).collect()
    }

    const SPAN: Range<u64> = LIBRARY..LIBRARY + (1 << 22);

    fn lasting(size: u64, maps: &[Mapping]) -> Option<u64> {
        Room { size, maps }.lasting(&SPAN)
    }

    #[test]
    fn above_all_that_the_kernel_maps() {
        let stack = TOP + (1 << 33);
        let files = [(LIBRARY, LIBRARY + (1 << 22)), (TOP - PAGE, TOP)];
        let mut mapped = maps(&[&files[..], &[(stack, stack + PAGE)]].concat());
        assert_eq!(lasting(1 << 24, &mapped), Some(TOP + STEP));
        // New code that is there already is no higher place to begin.
        let (from, to) = (TOP + STEP, TOP + STEP + (1 << 24));
        mapped.push(mapping(from, to, Some("/memfd:fettle-code"), None));
        assert_eq!(lasting(1 << 24, &mapped), Some(to));
    }

    #[test]
    fn below_where_that_is_not_possible() {
        let library = (LIBRARY, LIBRARY + (1 << 22));
        let far = LIBRARY + (1 << 22) - REACH;
        for others in [
            // The stack is near.
            vec![(TOP - PAGE, TOP), (TOP + STACK, TOP + STACK + PAGE)],
            // The kernel maps from the bottom.
            vec![(TOP - PAGE, TOP), (TOP + (1 << 44), TOP + (1 << 44) + PAGE)],
            // It is out of reach.
            vec![(TOP + (1 << 31), TOP + (1 << 31) + PAGE), (TOP + (1 << 34), TOP + (1 << 35))],
        ] {
            let mapped = maps(&[&[library][..], &others].concat());
            assert_eq!(lasting(1 << 20, &mapped), Some(far), "{others:x?}");
            let taken = [&[(far - PAGE, far + STEP)][..], &[library], &others].concat();
            assert_eq!(lasting(1 << 20, &maps(&taken)), Some(far + STEP), "{others:x?}");
        }
        // Nothing is free within reach.
        let all = [(LIBRARY - (1 << 32), LIBRARY + (1 << 22)), (TOP, TOP + PAGE)];
        assert_eq!(lasting(1 << 20, &maps(&all)), None);
    }

    #[test]
    fn at_the_same_distance_in_every_process() {
        let size = 1 << 20;
        let below = |maps: &[Mapping]| Room { size, maps }.below(&SPAN);
        let usual = LIBRARY - FROM_NEIGHBOURS - size;
        assert_eq!(below(&maps(&[(LIBRARY, TOP), (TOP + STACK, TOP + 2 * STACK)])), Some(usual));
        let arena = (usual + PAGE, LIBRARY);
        let next = maps(&[arena, (LIBRARY, TOP), (TOP + STACK, TOP + 2 * STACK)]);
        assert_eq!(below(&next), Some(usual - STEP));
        // Nothing else is left.
        let near = maps(&[(LIBRARY - (1 << 31), usual + STEP), (LIBRARY, TOP), (TOP, TOP + PAGE)]);
        assert_eq!(below(&near), Some(LIBRARY - STEP - size));
    }

    #[test]
    fn holes_are_found_between_mappings() {
        let mapped = maps(&[(0x1000_0000, 0x1100_0000), (0x1200_0000, 0x1300_0000)]);
        assert_eq!(find_hole(0x1000_0000, 0x10_0000, &mapped), Some(LiveAddr(0x1100_0000)));
        assert_eq!(find_hole(0x1000_0000, 0x200_0000, &mapped), Some(LiveAddr(0x1300_0000)));
        assert_eq!(find_hole(0x2000_0000, 1 << 47, &mapped), None);
    }
}
