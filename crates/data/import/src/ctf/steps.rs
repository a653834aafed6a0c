//! Steps that read an event, and what they load.

use crate::ctf::model::{Ranges, Role};

/// A step.
#[derive(Clone, Debug)]
pub enum Op {
    /// Loads of a stretch of `bits`, which begins `skip` bits within a byte.
    Fixed(Fixed),
    /// An integer of which it is not known where in a byte it begins.
    Bits { slot: u16, size: u8, signed: bool, little: bool },
    /// Goes to a multiple of so many bits.
    Align(u32),
    /// A number that says itself where it ends.
    Varint { slot: u16, signed: bool },
    /// A text that a zero ends.
    Text { slot: u16 },
    /// So many bytes.
    Bytes { slot: u16, count: CountOf },
    /// Elements, each read by `body`, whose values are in `width` slots from `first` on.
    Array { slot: u16, count: CountOf, body: Box<[Op]>, first: u16, width: u16 },
    /// One of several, by a value.
    Choose(Box<Choose>),
    /// A value has a meaning.
    Note { slot: u16, size: u8, role: Role },
}

/// Fields that always lie at the same place.
#[derive(Clone, Debug)]
pub struct Fixed {
    pub bits: u32,
    pub skip: u32,
    pub loads: Box<[Load]>,
}

/// A header as LTTng has it: the event's number and then the lowest bits of the time, within eight
/// bytes that begin with one. It is read at one go, which saves four steps of five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    pub class_bits: u32,
    pub time_bits: u32,
    /// Numbers from this one on are those of headers of another form.
    pub extended: u64,
    pub align: u32,
    pub class_slot: u16,
    pub time_slot: u16,
}

impl Compact {
    /// The form of a header's steps, if it is this one.
    pub(crate) fn of(header: &[Op]) -> Option<Compact> {
        let (align, rest) = match header {
            [Op::Align(align), rest @ ..] => (*align, rest),
            rest => (8, rest),
        };
        let [
            Op::Fixed(class),
            Op::Note { slot: class_slot, role: Role::Class, .. },
            Op::Choose(choose),
        ] = rest
        else {
            return None;
        };
        let (ranges, ops) = choose.options.first()?;
        let [Op::Fixed(time), Op::Note { slot: time_slot, role: Role::Time, .. }] = &**ops else {
            return None;
        };
        let &[(0, last)] = &ranges[..] else { return None };
        // One unsigned field, and nothing but it in the stretch.
        let single = |fixed: &Fixed| matches!(&*fixed.loads, [load] if load.little && load.ninth == 0 && !load.signed && load.right == (64 - fixed.bits) as u8);
        let good = align % 8 == 0
            && choose.selector.slot == *class_slot
            && class.skip == 0
            && (class.bits + time.bits) <= 64
            && single(class)
            && single(time)
            && time.bits < 64;
        let extended = u64::try_from(last).ok()?.checked_add(1)?;
        good.then_some(Compact {
            class_bits: class.bits,
            time_bits: time.bits,
            extended,
            align,
            class_slot: *class_slot,
            time_slot: *time_slot,
        })
    }
}

/// A choice between steps.
#[derive(Clone, Debug)]
pub struct Choose {
    pub selector: Selector,
    pub options: Vec<(Ranges, Box<[Op]>)>,
    /// For the lowest values of the selector the place of the option, plus one.
    pub dense: [u8; 64],
    /// Slots of all options: those of the ones that are not chosen become 0. None for headers,
    /// which are not shown.
    pub first: u16,
    pub width: u16,
    /// It is wrong if there is no option for a value.
    pub must: bool,
}

impl Choose {
    /// The steps for a value of the selector.
    #[inline]
    pub fn steps(&self, value: u64) -> Option<&[Op]> {
        if let Some(place) = self.dense.get(value as usize) {
            let place = usize::from(*place).checked_sub(1)?;
            return self.options.get(place).map(|(_, ops)| &**ops);
        }
        let value = if self.selector.signed { i128::from(value as i64) } else { i128::from(value) };
        let found = self.options.iter().find(|(ranges, _)| within(ranges, value));
        found.map(|(_, ops)| &**ops)
    }
}

pub(crate) fn within(ranges: &Ranges, value: i128) -> bool {
    ranges.iter().any(|(from, to)| (*from..=*to).contains(&value))
}

/// A load: eight bytes from `byte` on, shifted left and then right.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub byte: u32,
    pub slot: u16,
    pub left: u8,
    pub right: u8,
    pub signed: bool,
    pub little: bool,
    /// Field of more than 8 bytes' reach: its ninth byte's bits to take (a field of 64 bits that does
    /// not begin with a byte).
    pub ninth: u8,
}

/// How many.
#[derive(Clone, Copy, Debug)]
pub enum CountOf {
    Static(u64),
    Slot(u16),
}

/// The value that decides.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    pub slot: u16,
    pub signed: bool,
}
