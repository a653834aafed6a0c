//! The addresses of blocks: the original ones, or those of a layout.

use crate::code::{Code, End, Piece};

/// A block's place and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Address.
    pub at: u64,
    /// Bytes, with the final jump in the form that the layout needs.
    pub size: u32,
    /// Bytes of an additional jump behind it, to its fall-through successor.
    pub jump: u32,
    /// The block that follows right behind, of the same procedure.
    pub next: Option<u32>,
}

/// The places of all blocks.
#[derive(Clone, Debug)]
pub struct Addresses {
    places: Vec<Vec<Place>>,
}

/// Bytes of a jump that reaches far, and of one that does not.
const FAR: u32 = 5;
const NEAR: u32 = 2;
/// Bytes that a conditional jump grows by to reach far.
const GROWTH: u32 = 4;
/// Distance up to which jumps are short; a little less than they could be.
const SHORT: u64 = 120;

impl Addresses {
    /// As the original has them.
    pub fn original(code: &Code) -> Addresses {
        let places = code.procedures.iter().map(|procedure| {
            let blocks = &procedure.blocks;
            let place = |b: usize| {
                let end = blocks[b].at.0 + u64::from(blocks[b].size);
                let next = blocks.get(b + 1).filter(|n| n.at.0 == end);
                Place {
                    at: blocks[b].at.0,
                    size: blocks[b].size,
                    jump: 0,
                    next: next.map(|_| b as u32 + 1),
                }
            };
            (0..blocks.len()).map(place).collect()
        });
        Addresses { places: places.collect() }
    }

    /// With these pieces in that order, from address `start` on.
    pub fn of_pieces(code: &Code, pieces: &[Piece], start: u64) -> Addresses {
        let empty = |p: &crate::code::Procedure| vec![Place::default(); p.blocks.len()];
        let mut addresses = Addresses { places: code.procedures.iter().map(empty).collect() };
        // Once with the original's jumps, once with the sizes that the distances need.
        let mut piece_of = addresses.places.iter().map(|p| vec![0; p.len()]).collect::<Vec<_>>();
        for round in 0..2 {
            let before = addresses.clone();
            let mut at = start;
            for (number, piece) in pieces.iter().enumerate() {
                at = at.next_multiple_of(u64::from(piece.align.max(1)));
                for (i, block) in piece.blocks.iter().enumerate() {
                    let next = piece.blocks.get(i + 1).copied();
                    piece_of[piece.procedure][*block] = number;
                    let near = |to: usize| {
                        let there = before.places[piece.procedure][to].at;
                        round > 0
                            && piece_of[piece.procedure][to] == number
                            && there.abs_diff(before.places[piece.procedure][*block].at) < SHORT
                    };
                    let place = sized(&code.procedures[piece.procedure].blocks[*block], next, near);
                    addresses.places[piece.procedure][*block] =
                        Place { at, next: next.map(|n| n as u32), ..place };
                    at += u64::from(place.size + place.jump);
                }
            }
        }
        addresses
    }

    /// A block's place.
    pub fn of(&self, procedure: usize, block: usize) -> Place {
        self.places[procedure][block]
    }
}

/// The size of a block before `next`; `near` says which blocks are in reach of short jumps.
fn sized(block: &crate::code::Block, next: Option<usize>, near: impl Fn(usize) -> bool) -> Place {
    let jump = |to: usize| if near(to) { NEAR } else { FAR };
    let (size, jump) = match block.end {
        End::Falls(to) | End::Tail { falls: Some(to), .. } if next != Some(to) => {
            (block.size, jump(to))
        }
        End::Jumps { to, size } if next == Some(to) => (block.size - size, 0),
        End::Jumps { to, size } => (block.size - size + jump(to), 0),
        End::Branches { to, falls, size, turns } => {
            let turned = turns && next == Some(to);
            let target = if turned { falls } else { to };
            let short = if near(target) || !turns { 0 } else { GROWTH };
            let size = if turns { block.size - size + NEAR + short } else { block.size };
            (size, if turned || next == Some(falls) { 0 } else { jump(falls) })
        }
        _ => (block.size, 0),
    };
    Place { at: 0, size, jump, next: None }
}
