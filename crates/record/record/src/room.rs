//! The address-space gaps for rewritten text and memory: they should be in the way of nothing else, and
//! stay free until they are mapped.

use fettle_types::{LoadBias, PAGE, Pid};
use std::ops::Range;
use std::path::Path;

use fettle_image::{Image, Kind, LinkAddr};
use fettle_live::{Growth, LiveAddr, Mapping};

/// Places that are tried lie so far from each other.
const STEP: u64 = 1 << 20;
/// How far a jump reaches, less what jumps to addresses inside a mapping may need.
const REACH: u64 = (1 << 31) - (1 << 24);
/// Right next to libraries is what the kernel gives out next.
const FROM_NEIGHBOURS: u64 = 1 << 28;
/// What the main thread's stack is left to grow into, whatever its limit is.
const STACK: u64 = 1 << 30;
/// That, where there is less (without address space layout randomisation); programs that raise their
/// limit, as compilers do, ask for no more.
const SMALL_STACK: u64 = 1 << 26;
/// What must be free for a heap that is moved.
const HEAP: u64 = 1 << 36;
/// The end of the address space.
const END: u64 = (1 << 47) - PAGE;
/// The stack is at most so far above what the kernel maps first, which it chooses at random in a TiB,
/// unless it maps from the bottom (`ulimit -s unlimited`).
const STACK_FROM_MAPPINGS: u64 = 1 << 41;

/// What is mapped in a process, and where it grows.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace<'a> {
    /// What is mapped, and what is going to be.
    pub maps: &'a [Mapping],
    /// Where the heap and the main thread's stack grow.
    pub growth: Growth,
}

impl<'a> AddressSpace<'a> {
    /// That of a process, with these mappings.
    pub fn of(pid: Pid, maps: &'a [Mapping]) -> AddressSpace<'a> {
        AddressSpace { maps, growth: Growth::of(pid) }
    }
}

/// A link address for `size` bytes of rewritten text that is free, above `image` and within reach of all
/// of it, in a process that is stopped until they are mapped.
///
/// It is at the same distance in every process that has the room, so that one link serves them all. The
/// kernel leaves a gap of random size between a program and its heap, which is used for nothing:
/// rewritten text goes there if it fits ([`raised_heap`] makes it fit where the program has not run).
/// Else it goes as far above as it may, which leaves the heap most of the room. Right next to a library
/// is what the kernel gives out next: rewritten text keeps away.
///
/// Nothing goes below an image. Unwinders learn of rewritten text by the image's program headers, and
/// take an address below the one that the loader announces for one of another image: LLVM's libunwind
/// does.
pub fn find_room(
    image: &Image,
    load_bias: LoadBias,
    size: u64,
    space: AddressSpace<'_>,
) -> Option<LinkAddr> {
    find(image, load_bias, size, space, |room, image, kind| match kind {
        Kind::Executable => room.before_heap(image).or_else(|| room.in_low_memory(image)),
        _ => room.above_library(image),
    })
}

/// As [`find_room`], in a process that runs, and maps memory itself, until they are.
///
/// The kernel maps libraries and all that a process asks for from the top down, below what it has
/// mapped. It never goes above where it began, and the stack ends far above that: rewritten text of a
/// library lies there, where no stack or arena of a thread takes its place before it is mapped. Where
/// that is out of reach, it lies as far above its library as it may.
///
/// Of a program at a fixed address it lies as high as two gigabytes allow. Numbers of a program's data that
/// are as small as its addresses (counters, pairs of characters in tables of Unicode) may be return addresses
/// for all that is known, and one that may lead to rewritten text keeps it mapped; large numbers are rare.
pub fn find_lasting_room(
    image: &Image,
    load_bias: LoadBias,
    size: u64,
    space: AddressSpace<'_>,
) -> Option<LinkAddr> {
    find(image, load_bias, size, space, |room, image, kind| room.lasting(image, kind))
}

/// As [`find_lasting_room`], for code that unwinders need not know of: it may lie below, too.
pub fn find_lasting_room_beside(
    image: &Image,
    load_bias: LoadBias,
    size: u64,
    space: AddressSpace<'_>,
) -> Option<LinkAddr> {
    find(image, load_bias, size, space, |room, image, kind| {
        room.lasting(image, kind).or_else(|| room.below(image))
    })
}

/// Where the heap of a program that has not run yet would have to begin for `size` bytes of rewritten
/// text to fit in between; `None` if they do, or if the heap is elsewhere.
pub fn raised_heap(
    image: &Image,
    load_bias: LoadBias,
    size: u64,
    space: AddressSpace<'_>,
) -> Option<LiveAddr> {
    let (image, size) = (span(image, load_bias)?, size.next_multiple_of(PAGE));
    let room = Room { size, space };
    let heap = room.heap(&image)?;
    if room.before_heap(&image).is_some() {
        return None;
    }
    // It keeps its random distance.
    let code_end = above(&image) + size;
    let raised = code_end + (heap - image.end.min(heap)).next_multiple_of(PAGE);
    let free = Room { size: raised + HEAP - code_end, space }.is_free(code_end);
    (room.is_free(above(&image)) && free).then_some(LiveAddr(raised))
}

fn find(
    image: &Image,
    load_bias: LoadBias,
    size: u64,
    space: AddressSpace<'_>,
    near: impl Fn(&Room<'_>, &Range<u64>, Kind) -> Option<u64>,
) -> Option<LinkAddr> {
    let image_at = span(image, load_bias)?;
    let room = Room { size: size.next_multiple_of(PAGE), space };
    let live = match (image.kind(), room.heap(&image_at)) {
        (kind, Some(_)) if kind != Kind::Executable => {
            room.before_heap(&image_at).or_else(|| room.far_above(&image_at))
        }
        (kind, _) => near(&room, &image_at, kind),
    };
    Some(LiveAddr(live?) - load_bias)
}

/// What an image takes of a process's address space.
fn span(image: &Image, load_bias: LoadBias) -> Option<Range<u64>> {
    let low = image.segments().iter().map(|s| s.start).min()?;
    let high = image.segments().iter().map(|s| s.start + s.mem_size).max()?;
    Some((low + load_bias).0..(high + load_bias).0)
}

/// Where the slots are looked for room in the programs' address spaces: below the libraries, where
/// sanitizers have room for these too, and above all that loaders and allocators use.
const SLOTS_FROM: u64 = 0x7e90_0000_0000;

/// The same where user space ends earlier, as in User-Mode Linux: what is mapped highest, the stack or
/// the vDSO, shows about where.
pub fn slots_from(maps: &[Mapping], size: u64) -> u64 {
    /// What `vsyscall` is mapped at, which is not user space.
    const KERNEL_FROM: u64 = 1 << 47;
    let ends = maps.iter().map(|mapping| mapping.end.0).filter(|end| *end < KERNEL_FROM);
    let top = ends.max().unwrap_or(KERNEL_FROM);
    match SLOTS_FROM.saturating_add(size) < top {
        true => SLOTS_FROM,
        false => (top / 2) & !(PAGE - 1),
    }
}

/// An address-space gap of `size` bytes anywhere above `from`.
pub fn find_gap(from: u64, size: u64, maps: &[Mapping]) -> Option<LiveAddr> {
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

/// Room for so many bytes in a process, near an image.
struct Room<'a> {
    size: u64,
    space: AddressSpace<'a>,
}

impl Room<'_> {
    fn is_free(&self, at: u64) -> bool {
        self.space.maps.iter().all(|m| m.end.0 <= at || m.start.0 >= at + self.size)
    }

    /// As high as it may be, or as low.
    fn first(&self, lowest: u64, highest: u64, from_top: bool) -> Option<u64> {
        let steps = highest.checked_sub(lowest)? / STEP;
        let at = |i| if from_top { highest - i * STEP } else { lowest + i * STEP };
        (0..=steps).map(at).find(|at| self.is_free(*at))
    }

    /// Where the heap begins, if it grows behind the image and within its reach.
    fn heap(&self, image: &Range<u64>) -> Option<u64> {
        let heap = self.space.growth.heap?.0;
        (image.end..image.start.saturating_add(REACH)).contains(&heap).then_some(heap)
    }

    /// Between the image and its heap.
    fn before_heap(&self, image: &Range<u64>) -> Option<u64> {
        let (at, heap) = (above(image), self.heap(image)?);
        (at + self.size <= heap && self.is_free(at)).then_some(at)
    }

    fn in_low_memory(&self, image: &Range<u64>) -> Option<u64> {
        let top = (1u64 << 31).checked_sub(STEP + self.size)? & !(PAGE - 1);
        self.first(above(image), top, true)
    }

    /// As far above as it may be.
    fn far_above(&self, image: &Range<u64>) -> Option<u64> {
        self.up_to(image, |end| self.first(above(image), self.highest(image, end)?, true))
    }

    /// The first end that will do of those that leave the stack room to grow into.
    fn up_to(&self, image: &Range<u64>, find: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        [STACK, SMALL_STACK].into_iter().find_map(|least| {
            let end = match self.stack().filter(|stack| *stack >= image.end) {
                Some(stack) => stack.checked_sub(least.max(self.space.growth.stack))?,
                None => END,
            };
            find(end)
        })
    }

    fn stack(&self) -> Option<u64> {
        Some(self.space.maps.iter().find(|m| m.name.as_deref() == Some("stack"))?.start.0)
    }

    /// The highest place that is reached by all of an image, and ends before `end`.
    fn highest(&self, image: &Range<u64>, end: u64) -> Option<u64> {
        let end = image.start.saturating_add(REACH).min(end);
        Some(end.checked_sub(self.size)? & !(PAGE - 1))
    }

    fn above_library(&self, image: &Range<u64>) -> Option<u64> {
        let above = |distance| {
            self.up_to(image, |end| {
                let lowest = image.end.next_multiple_of(PAGE).checked_add(distance)?;
                self.first(lowest, self.highest(image, end)?, false)
            })
        };
        above(FROM_NEIGHBOURS).or_else(|| above(STEP))
    }

    fn lasting(&self, image: &Range<u64>, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Executable if self.heap_is_small() => {
                self.in_low_memory(image).or_else(|| self.before_heap(image))
            }
            Kind::Executable => self.before_heap(image).or_else(|| self.in_low_memory(image)),
            _ => self.above_mappings(image).or_else(|| self.far_above(image)),
        }
    }

    /// Whether a heap in low memory has most of that to grow into.
    fn heap_is_small(&self) -> bool {
        let heap = self.space.maps.iter().find(|m| m.name.as_deref() == Some("heap"));
        heap.is_none_or(|heap| heap.end.0 < 1 << 30)
    }

    fn above_mappings(&self, image: &Range<u64>) -> Option<u64> {
        let stack = self.stack()?;
        // Rewritten text is a file in memory.
        let is_memory = |path: &Path| path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
        let is_file = |m: &&Mapping| m.path.as_ref().is_some_and(|path| !is_memory(path));
        let files = self.space.maps.iter().filter(is_file).map(|m| m.end.0);
        let top = files.filter(|end| *end <= stack).max()?;
        if stack - top > STACK_FROM_MAPPINGS {
            return None;
        }
        self.up_to(image, |end| self.first(top + STEP, self.highest(image, end)?, false))
    }

    /// As far below as it may be.
    fn below(&self, image: &Range<u64>) -> Option<u64> {
        let highest = image.start.checked_sub(STEP + self.size)? & !(PAGE - 1);
        self.first(lowest(image), highest, false)
    }
}

/// The lowest place above an image.
fn above(image: &Range<u64>) -> u64 {
    image.end.next_multiple_of(PAGE) + STEP
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

    /// Room in a process with these mappings, and a heap.
    fn room<'a>(size: u64, maps: &'a [Mapping], heap: Option<u64>) -> Room<'a> {
        let growth = Growth { heap: heap.map(LiveAddr), stack: 1 << 23 };
        Room { size, space: AddressSpace { maps, growth } }
    }

    fn lasting(size: u64, maps: &[Mapping]) -> Option<u64> {
        room(size, maps, None).lasting(&SPAN, Kind::SharedLibrary)
    }

    #[test]
    fn above_all_that_the_kernel_maps() {
        let stack = TOP + (1 << 33);
        let files = [(LIBRARY, LIBRARY + (1 << 22)), (TOP - PAGE, TOP)];
        let mut mapped = maps(&[&files[..], &[(stack, stack + PAGE)]].concat());
        assert_eq!(lasting(1 << 24, &mapped), Some(TOP + STEP));
        // Rewritten text that is there already is no higher address to begin at.
        let (from, to) = (TOP + STEP, TOP + STEP + (1 << 24));
        mapped.push(mapping(from, to, Some("/memfd:fettle-code"), None));
        assert_eq!(lasting(1 << 24, &mapped), Some(to));
    }

    #[test]
    fn as_far_above_as_reached_elsewhere() {
        let library = (LIBRARY, LIBRARY + (1 << 22));
        let size = 1 << 20;
        let far = LIBRARY + REACH - size;
        for others in [
            // The kernel maps from the bottom.
            vec![(TOP - PAGE, TOP), (TOP + (1 << 44), TOP + (1 << 44) + PAGE)],
            // What is above all is out of reach.
            vec![(TOP + (1 << 31), TOP + (1 << 31) + PAGE), (TOP + (1 << 34), TOP + (1 << 35))],
        ] {
            let mapped = maps(&[&[library][..], &others].concat());
            assert_eq!(lasting(size, &mapped), Some(far), "{others:x?}");
            let taken = [&[(far, far + STEP)][..], &[library], &others].concat();
            assert_eq!(lasting(size, &maps(&taken)), Some(far - STEP), "{others:x?}");
        }
        // Nothing is free above within reach: only what unwinders need not know goes below.
        let all = [(LIBRARY, LIBRARY + (1 << 31)), (TOP + (1 << 40), TOP + (1 << 41))];
        assert_eq!(lasting(size, &maps(&all)), None);
        let room_for = (size, maps(&all));
        let below = room(room_for.0, &room_for.1, None).below(&SPAN);
        assert_eq!(below, Some(LIBRARY + (1 << 22) - REACH));
    }

    #[test]
    fn the_stack_has_room_to_grow() {
        // 128 MiB, as without address space layout randomisation.
        let library = LIBRARY + (1 << 22);
        let stack = library + (1 << 27);
        let mapped = maps(&[(LIBRARY, library), (stack, stack + PAGE)]);
        assert_eq!(lasting(1 << 20, &mapped), Some(library + STEP));
        let above = |size| room(size, &mapped, None).above_library(&SPAN);
        assert_eq!(above(1 << 20), Some(library + STEP));
        assert_eq!(above((1 << 26) - STEP), Some(library + STEP));
        assert_eq!(above(1 << 26), None);
        // Its limit is larger.
        let growth = Growth { heap: None, stack: 1 << 27 };
        let room = Room { size: PAGE, space: AddressSpace { maps: &mapped, growth } };
        assert_eq!(room.above_library(&SPAN), None);
    }

    #[test]
    fn at_the_same_distance_in_every_process() {
        let size = 1 << 20;
        let above = |maps: &[Mapping]| room(size, maps, None).above_library(&SPAN);
        let usual = SPAN.end + FROM_NEIGHBOURS;
        let stack = (TOP + STACK * 8, TOP + STACK * 8 + PAGE);
        assert_eq!(above(&maps(&[(SPAN.start, SPAN.end), stack])), Some(usual));
        let arena = (usual + PAGE, usual + 2 * PAGE);
        assert_eq!(above(&maps(&[(SPAN.start, SPAN.end), arena, stack])), Some(usual + STEP));
        // Nothing else is left.
        let near = (SPAN.end + 2 * STEP, SPAN.end + (1 << 31));
        assert_eq!(above(&maps(&[(SPAN.start, SPAN.end), near, stack])), Some(SPAN.end + STEP));
    }

    #[test]
    fn before_the_heap_or_far_above_it() {
        let size = 1 << 20;
        let stack = (1 << 46, (1 << 46) + PAGE);
        let mapped = maps(&[(SPAN.start, SPAN.end), stack]);
        let at = SPAN.end + STEP;
        for heap in [at + size, at + size + PAGE, SPAN.start + REACH - 1] {
            assert_eq!(room(size, &mapped, Some(heap)).before_heap(&SPAN), Some(at));
        }
        for heap in [SPAN.end, at + size - PAGE, SPAN.start, 0, SPAN.start + REACH] {
            assert_eq!(room(size, &mapped, Some(heap)).before_heap(&SPAN), None, "{heap:#x}");
        }
        let far = SPAN.start + REACH - size;
        assert_eq!(room(size, &mapped, Some(SPAN.end)).far_above(&SPAN), Some(far));
    }

    #[test]
    fn gaps_are_found_between_mappings() {
        let mapped = maps(&[(0x1000_0000, 0x1100_0000), (0x1200_0000, 0x1300_0000)]);
        assert_eq!(find_gap(0x1000_0000, 0x10_0000, &mapped), Some(LiveAddr(0x1100_0000)));
        assert_eq!(find_gap(0x1000_0000, 0x200_0000, &mapped), Some(LiveAddr(0x1300_0000)));
        assert_eq!(find_gap(0x2000_0000, 1 << 47, &mapped), None);
    }

    /// High in low memory, where numbers of a program's data seldom lead; before the heap if that is large.
    #[test]
    fn programs_at_fixed_addresses_keep_away_from_small_numbers() {
        let program = 0x40_0000..0x80_0000;
        let place = |heap_end: u64| {
            let maps = [
                mapping(program.start, program.end, Some("/bin/x"), None),
                mapping(0x200_0000, heap_end, None, Some("heap")),
            ];
            room(0x10_0000, &maps, Some(0x200_0000)).lasting(&program, Kind::Executable)
        };
        assert_eq!(place(0x300_0000), Some(0x7fe0_0000));
        assert_eq!(place(0x5000_0000), Some(0x90_0000));
    }
}
