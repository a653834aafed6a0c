//! Floating-point variables: each is kept in the ways in which it is seen, and converted when it is
//! seen in another.

use super::{Emitter, RUNTIME};
use crate::flow::Live;
use crate::ir::{Fp, Rep};
use crate::op;

impl Emitter<'_> {
    /// Makes them readable in the way that a block expects.
    pub(super) fn make_valid(&mut self, live: &Live) {
        for (fp, mask) in live.fps() {
            self.ensure(fp, Rep::best(mask));
        }
    }

    /// Makes a variable readable as `rep`; its slot.
    pub(super) fn ensure(&mut self, fp: Fp, rep: Rep) -> u16 {
        let valid = self.valid[fp.0 as usize];
        if valid & rep as u8 == 0 {
            let from = [Rep::Double, Rep::Long, Rep::Float, Rep::Int]
                .into_iter()
                .find(|&from| valid & from as u8 != 0);
            match from {
                Some(from) => {
                    let slot = self.fp(fp, from);
                    self.load_local(slot, from.ty());
                    self.convert(from, rep);
                }
                None => self.zero(rep.ty()),
            }
            let slot = self.fp(fp, rep);
            self.store_local(slot, rep.ty());
            self.valid[fp.0 as usize] |= rep as u8;
        }
        self.fp(fp, rep)
    }

    /// Converts the bits on the operand stack.
    pub(super) fn convert(&mut self, from: Rep, to: Rep) {
        let class = self.program.convention.class();
        match (from, to) {
            (Rep::Int, Rep::Float) => {
                self.java("java/lang/Float", "intBitsToFloat", "(I)F", 0);
            }
            (Rep::Float, Rep::Int) => {
                self.java(&format!("{RUNTIME}{class}"), "bits", "(F)I", 0);
            }
            (Rep::Double, Rep::Long) => {
                self.java(&format!("{RUNTIME}{class}"), "bits", "(D)J", 0);
            }
            (Rep::Long, Rep::Double) => {
                self.java("java/lang/Double", "longBitsToDouble", "(J)D", 0);
            }
            (Rep::Int, Rep::Long) => self.unsigned_long(),
            (Rep::Long, Rep::Int) => self.code.op(op::L2I, -1),
            (from, to) if from == to => {}
            // By way of the bits.
            (Rep::Float, _) => {
                self.convert(Rep::Float, Rep::Int);
                self.convert(Rep::Int, to);
            }
            (Rep::Double, _) => {
                self.convert(Rep::Double, Rep::Long);
                self.convert(Rep::Long, to);
            }
            (Rep::Int, _) => {
                self.convert(Rep::Int, Rep::Long);
                self.convert(Rep::Long, to);
            }
            (Rep::Long, _) => {
                self.convert(Rep::Long, Rep::Int);
                self.convert(Rep::Int, to);
            }
        }
    }
}
