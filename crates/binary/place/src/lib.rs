//! Layouts for hot code: the order of blocks, the order of functions, cold code out of the way.
//!
//! Lifted functions and counts become [`Code`], a graph without machine code. [`lay_out`] splits
//! hot blocks from cold ones, forms chains of the hot ones so that control mostly falls through,
//! and orders chains across functions so that code that runs together is close together. Two
//! methods for chains compete, Pettis and Hansen's and the extended travelling salesman problem of
//! Newell and Pupyrev; the [`model`] of an instruction cache says which is the better here.
//!
//! Everything is data in and data out: installing a layout, and measuring it, is done elsewhere.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod chains;
pub mod code;
pub mod ext_tsp;
pub mod figures;
pub mod group;
pub mod lifted;
mod min_cost_flow;
pub mod model;
pub mod order;
pub mod promote;
pub mod samples;
pub mod score;

pub use code::{Block, Call, Callee, Code, End, Jump, Piece, Pointer, Procedure};
pub use lifted::{Counts, Target};
pub use order::{Choice, Chosen, Layout, Method, Options, Unit, lay_out};
