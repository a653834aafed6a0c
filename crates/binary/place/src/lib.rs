//! Where hot code should lie: blocks in order, functions in order, cold code out of the way.
//!
//! Lifted functions and counts become [`Code`], a graph without machine code. [`lay_out`] splits
//! hot blocks from cold ones, lines the hot ones up in chains so that control mostly falls
//! through, and orders chains across functions so that what runs together lies together. Two
//! ways to make chains compete, Pettis and Hansen's and the extended travelling salesman problem
//! of Newell and Pupyrev; the [`model`] of an instruction cache says which is the better here.
//!
//! Everything is data in and data out: who installs a layout, and measures what it brings, is
//! elsewhere.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod chains;
mod circulation;
pub mod code;
pub mod ext_tsp;
pub mod figures;
pub mod group;
pub mod lifted;
pub mod model;
pub mod order;
pub mod promote;
pub mod samples;
pub mod score;

pub use code::{Block, Call, Callee, Code, End, Jump, Piece, Pointer, Procedure};
pub use lifted::{Counts, Target};
pub use order::{Choice, Chosen, Layout, Method, Options, Unit, lay_out};
